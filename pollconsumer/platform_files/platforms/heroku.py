"""A script for Heroku Scheduler, whose jobs are made in its dashboard. Variables are the app's config vars."""

from __future__ import annotations

from pathlib import Path

from pollconsumer.platform_files.calendar import for_heroku
from pollconsumer.platform_files.file_text import render, shell
from pollconsumer.platform_files.installation import EXECUTABLE, STORE, File, Installation

INTERVALS = {
    "*/10 * * * *": "every 10 minutes",
    "0 * * * *": "every hour at :00",
    "0 0 * * *": "every day at 00:00 UTC",
}
ADD_ON = f"""# The add-on's URL, which changes with its password; its certificate is its own.
export {STORE}="${{{STORE}:-${{REDIS_URL:?heroku addons:create heroku-redis:mini}}?ssl_cert_reqs=none}}"
"""


def files(installation: Installation) -> list[File]:
    schedule = for_heroku(installation.schedule)
    embedded = installation.settings.is_embedded and installation.settings.client is None
    variables = installation.environment if embedded else installation.remote_environment
    command = installation.run_in_repository("--linger", "30s", "--launcher", "drop", schedule=schedule)
    text = render(
        "heroku.sh",
        interval=INTERVALS[schedule],
        script=shell(["sh", str(Path(installation.in_repository) / "heroku.sh")]),
        set="".join(f" {each}=…" for each in sorted(variables)) or " (none is needed)",
        store=ADD_ON if embedded else "",
        run=shell(command),
    )
    return [File("heroku.sh", text, EXECUTABLE)]
