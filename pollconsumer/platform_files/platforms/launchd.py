"""A property list for launchd: an agent of this user on macOS."""

from __future__ import annotations

from xml.sax.saxutils import escape

from pollconsumer.platform_files.calendar import for_launchd
from pollconsumer.platform_files.file_text import render, shell
from pollconsumer.platform_files.installation import ENVIRONMENT_FILE, PRIVATE, File, Installation, environment_text


def files(installation: Installation) -> list[File]:
    label = f"local.{installation.name}"
    words = installation.run("--handoff", "deadline", "--launcher", "drop")
    if installation.data_home:
        words = ("/usr/bin/env", f"XDG_DATA_HOME={installation.data_home}", *words)
    if installation.environment:
        source = shell([str(installation.environment_file)])
        words = ("/bin/sh", "-c", f"set -a; . {source}; exec {shell(words)}")
    text = render(
        "launchd.plist",
        label=label,
        words="\n".join(f"<string>{escape(word)}</string>" for word in words),
        instants="\n".join(_entry(each) for each in for_launchd(installation.schedule)),
        exit_timeout=installation.stop_grace,
        log=escape(str(installation.settings.directory / f"{label}.log")),
    )
    found = [File(f"{label}.plist", text)]
    if installation.environment:
        found.append(File(ENVIRONMENT_FILE, environment_text(installation.environment), PRIVATE, printed=False))
    return found


def _entry(instant: dict[str, int]) -> str:
    keys = "".join(f"<key>{key}</key><integer>{value}</integer>" for key, value in instant.items())
    return f"<dict>{keys}</dict>"
