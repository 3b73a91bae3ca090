"""What ``deploy/`` holds: the output of ``init`` for config.toml as a package installs it.

``python -m tests.interface.deployed`` writes it again.
"""

from __future__ import annotations

from pathlib import Path

from pollconsumer.interface.settings.load import read_settings
from pollconsumer.interface.settings.model import changed
from pollconsumer.platform_files.files import File
from pollconsumer.platform_files.init_command import PLATFORMS
from pollconsumer.platform_files.installation import STORE, Installation

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
HOME = Path("/var/lib/pollconsumer")
CONFIG = Path("/etc/pollconsumer/config.toml")
LOCAL = ("cron", "systemd", "docker", "launchd")
URL = "rediss://:change-me@redis.example.org:6379/0"


def installation(platform: str) -> Installation:
    settings = changed(read_settings(ROOT / "config.toml"), config=CONFIG, directory=CONFIG.parent)
    program, user, data = ("/opt/pollconsumer/bin/pollconsumer",), "pollconsumer", HOME / ".local/share/pollconsumer"
    if platform in LOCAL:
        return Installation(settings, program, user, queues=("default",), data=data)
    return Installation(changed(settings, store=URL), program, user, environment={STORE: URL})


def deployed() -> dict[Path, File]:
    """Path below the repository → file."""
    found = {DEPLOY / name / file.name: file for name in PLATFORMS for file in PLATFORMS[name](installation(name))}
    return found | {ROOT / "crontab.example": found[DEPLOY / "cron" / "crontab"]}


if __name__ == "__main__":
    for path, file in deployed().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text)
        path.chmod(0o755 if file.mode & 0o100 else 0o644)
