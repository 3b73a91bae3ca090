"""The files of a first project: its configuration, a handler, a test. They are written once, for no platform."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from pollconsumer.platform_files.file_text import render
from pollconsumer.platform_files.installation import File

LONGEST_SLUG = 40


def files(directory: Path) -> list[File]:
    written = {name: render(f"project.{name}") for name in ("handlers", "test_handlers")}
    config = render("project.config.toml", namespace=_namespace(directory.name))
    return [File("config.toml", config), *(File(f"{name}.py", text) for name, text in written.items())]


def _namespace(name: str) -> str:
    """A namespace that no other project has, even if its directory has the same ``name``."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower())[:LONGEST_SLUG].strip("-")
    return f"{slug or 'project'}-{secrets.token_hex(3)}"
