"""A cron service of Railway, and with ``store = "embedded"`` a Redis that takes its place."""

from __future__ import annotations

from pollconsumer.platform_files.calendar import five_minutes_apart
from pollconsumer.platform_files.file_text import quoted, render, shell
from pollconsumer.platform_files.installation import STORE, File, Installation

REDIS = """// In the place of the embedded store, which would end with each run. It saves once a minute: what came after
// that is lost if it crashes.
const store = redis($name);"""


def files(installation: Installation) -> list[File]:
    name, schedule = installation.name, five_minutes_apart(installation.schedule)
    command = installation.run_in_repository("--linger", "30s", "--launcher", "drop", schedule=schedule)
    values = dict.fromkeys(sorted(installation.remote_environment), "preserve()")
    brings_store = installation.settings.is_embedded and STORE in values
    if brings_store:
        values[STORE] = "store.env.REDIS_URL"
    kept = [variable for variable, value in values.items() if value == "preserve()"]
    text = render(
        "railway.ts",
        name=name,
        set="\n".join(f"//   railway variable set {each}=… --service {name}" for each in kept),
        redis=" redis," if brings_store else "",
        store=REDIS.replace("$name", quoted(f"{name}-store")) if brings_store else "",
        start=quoted(shell(command)),
        schedule=quoted(schedule),
        grace=installation.stop_grace,
        environment="\n".join(f"{variable}: {value}," for variable, value in values.items()),
        resources="store, launch" if brings_store else "launch",
    )
    return [File(f".railway/{name}.ts", text, comment="//")]
