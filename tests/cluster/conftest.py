"""These need a cluster: they run with ``--cluster``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return (collection_path.name.startswith("test_") and not config.option.cluster) or None
