"""A web server's user and another's crontab, under Debian's own cron, with one configuration and one embedded server.

Run as root in the repository, with cron installed::

    python -m tests.cron.two_users [--minutes 10]

``www-data`` enqueues twice a second as a web process does, and each minute from its crontab; ``ada``'s crontab
launches. Each 90 s the server is killed, or stopped by the user who did not start it; whoever comes first starts the
next. Prints a report; exit code 1 if a message that was accepted was not handled, 2 when this machine cannot run it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from tests.cron.daemon import Cron
from tests.cron.place import REPOSITORY, Unfit, enter, show
from tests.users import APP, UIDS, Users

HANDLERS = """
import os
from pathlib import Path
from pollconsumer import PollConsumer
app = PollConsumer()
@app.handler("note")
def note(name: str) -> None:
    with Path(__file__).with_name("notes").open("a") as notes:
        notes.write(f"{name} {os.geteuid()}\\n")
"""
PRODUCE = """
import sys, time
from pollconsumer import PollConsumer, PollConsumerError
app, until, n, failed = PollConsumer(), time.monotonic() + float(sys.argv[1]), 0, 0
while time.monotonic() < until:
    try:
        app.enqueue("note", {"name": f"web-{n}"})
        n += 1
    except PollConsumerError:
        failed += 1
    time.sleep(0.5)
print(n, failed)
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cron.two_users", description="two users under Debian's cron")
    parser.add_argument("--minutes", type=int, default=10)
    minutes = parser.parse_args().minutes
    try:
        enter()
        place = Path(tempfile.mkdtemp(prefix="pccron-", dir="/tmp"))
        place.chmod(0o755)
        users = Users(place)
        return _report(*_run(users, minutes))
    except Unfit as error:
        sys.stderr.write(f"tests.cron.two_users: {error}\n")
        return 2


def _run(users: Users, minutes: int) -> tuple[Users, list[str], str, str]:
    place, data, config = users.place, users.place / "data", users.place / "config.toml"
    users.mount()
    config.write_text('namespace = "site"\nhandlers = ["noted"]\ndata = "data"\n[consumer]\nschedule = "* * * * *"\n')
    (place / "noted.py").write_text(HANDLERS)
    (place / "notes").touch()
    os.chown(place / "notes", UIDS["ada"], APP)
    data.mkdir()
    os.chown(data, UIDS["ada"], APP)
    data.chmod(0o2770)
    cron = Cron(place)
    program = f"{sys.executable} -m pollconsumer"
    line = f"umask 077; exec {program}"
    variables = f"PYTHONPATH={REPOSITORY}\nPYTHONDONTWRITEBYTECODE=1\nHOME={place}/{{user}}\n"
    for user, command in (
        ("www-data", f"{line} --config {config} enqueue note '{{\"name\": \"cron-'$(date +\\%M)'\"}}' >/dev/null"),
        ("ada", f"{line} run --config {config}"),
    ):
        crontab = f"{variables.format(user=user)}* * * * * {command}\n"
        subprocess.run(["crontab", "-u", user, "-"], input=crontab, text=True, check=True)
    cron.start()
    starts: list[str] = []
    environment = {
        "HOME": str(place / "www-data"), "POLLCONSUMER_CONFIG": str(config), "PYTHONPATH": str(REPOSITORY),
    }  # fmt: skip
    web = subprocess.Popen(
        users.words("www-data", sys.executable, "-c", PRODUCE, str(minutes * 60.0), umask="077"),
        env=environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    turn = 0
    while web.poll() is None:
        with suppress(OSError, ValueError):
            pid = int((data / "server.pid").read_text())
            who = f"{pid} of {os.stat(f'/proc/{pid}').st_uid}"  # noqa: PTH116
            if not starts or starts[-1] != who:
                starts.append(who)
                show(f"{time.strftime('%H:%M:%S')} server {who}")
                ends = time.monotonic() + 90
            elif time.monotonic() > ends:
                turn += 1
                show(f"{time.strftime('%H:%M:%S')} {'killed' if turn % 2 else 'stopped by the other user'}")
                if turn % 2:
                    os.kill(pid, signal.SIGKILL)
                else:
                    other = "ada" if who.endswith(" 33") else "www-data"
                    users.run(other, "store", "stop", config=config)
                ends = time.monotonic() + 90
        time.sleep(0.05)
    enqueued = web.communicate()[0].strip()
    cron.stop()
    time.sleep(70)
    left = users.run("ada", "run", "--until-empty", "--timeout", "30s", config=config)
    shown = users.run("www-data", "status", config=config).stdout
    users.run("www-data", "store", "stop", config=config)
    cron.close()
    return users, starts, enqueued, f"{cron.mailed()}{left.stderr}\n{shown}"


def _report(users: Users, starts: list[str], enqueued: str, printed: str) -> int:
    notes = Counter(line.split()[0] for line in (users.place / "notes").read_text().splitlines())
    accepted, failed = map(int, enqueued.split())
    lost = [name for name in (f"web-{n}" for n in range(accepted)) if not notes[name]]
    twice = [name for name, count in notes.items() if count > 1]
    by_cron = sum(name.startswith("cron-") for name in notes)
    show(printed)
    show(
        f"{accepted} accepted from the web process, {failed} refused; {by_cron} from its crontab; "
        f"{sum(notes.values())} handled"
    )
    show(f"{len(starts)} servers: {', '.join(starts)}; lost {lost}; handled again {twice}")
    shutil.rmtree(users.place, ignore_errors=True)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
