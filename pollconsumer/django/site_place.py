"""Where a site is, and the application that it has there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from django.conf import settings as django_settings

from pollconsumer.interface.api.app import PollConsumer, calls_of
from pollconsumer.interface.settings.load import Beside, beside_module


def beside_site() -> Beside | None:
    """Where the search for the site's configuration begins: in BASE_DIR, else beside its settings module."""
    module = sys.modules.get(str(getattr(django_settings, "SETTINGS_MODULE", None)))
    found = beside_module(getattr(module, "__file__", None))
    base = getattr(django_settings, "BASE_DIR", None)
    if base is None:
        return found
    directory = Path(base).absolute()
    return Beside((directory,), directory.stat().st_uid if found is None else found.owner)


def application(**options: Any) -> PollConsumer:
    """An application of the site's."""
    app = PollConsumer(**options)
    calls_of(app).beside = beside_site
    return app
