"""Each platform's files, imported lazily."""

from __future__ import annotations

from importlib import import_module

from pollconsumer.platform_files.installation import File, Installation

PLATFORMS = (
    "cron",
    "systemd",
    "kubernetes",
    "keda",
    "azure",
    "docker",
    "github",
    "cloudrun",
    "ecs",
    "containerapps",
    "heroku",
    "render",
    "railway",
    "gitlab",
    "launchd",
)


def files_of(platform: str, installation: Installation) -> list[File]:
    """The files of ``platform``. ConfigurationError for a configuration that the platform cannot launch."""
    found: list[File] = import_module(f"{__package__}.{platform}").files(installation)
    return found
