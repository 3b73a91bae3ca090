"""A command line in this process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pollconsumer.interface import cli


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Exit code, standard output and standard error of a command line in this process."""

    def run_arguments(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(arguments)
        return code, *capsys.readouterr()

    return run_arguments
