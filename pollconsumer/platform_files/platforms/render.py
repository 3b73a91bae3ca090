"""A Blueprint of Render: a cron job, and with ``store = "embedded"`` a Key Value service that takes its place."""

from __future__ import annotations

from collections.abc import Iterator

from pollconsumer.platform_files.calendar import with_sunday_0
from pollconsumer.platform_files.file_text import keyed, quoted, render, shell
from pollconsumer.platform_files.installation import STORE, File, Installation


def files(installation: Installation) -> list[File]:
    # A run takes its time to start, and is delayed while the one before is active.
    command = installation.run_at(
        "pollconsumer", installation.in_repository, "--handoff", "deadline", "--launcher", "queue"
    )
    name, embedded = installation.name, installation.settings.is_embedded
    text = render(
        "render.yaml",
        name=name,
        store=render("render.keyvalue", name=name) if embedded and STORE in installation.remote_environment else "",
        schedule=quoted(with_sunday_0(installation.schedule)),
        install=quoted(installation.installs),
        run=quoted(f"exec {shell(command)}"),
        environment=keyed("envVars", _variables(installation)),
    )
    return [File("render.yaml", text)]


def _variables(installation: Installation) -> Iterator[str]:
    for each in sorted(installation.remote_environment):
        if each == STORE and installation.settings.is_embedded:
            service = f"name: {installation.name}-store\n    type: keyvalue\n    property: connectionString"
            yield f"- key: {each}\n  fromService:\n    {service}"
        else:
            yield f"- key: {each}\n  sync: false            # asked for in the dashboard, and kept there"
