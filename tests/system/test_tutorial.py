"""docs/tutorial.md, followed to the letter: its files saved, its commands typed at a terminal, in the order given, from
an empty directory on; and what the page says that they print."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import sysconfig
import termios
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

from pollconsumer.core.errors import PollConsumerError
from pollconsumer.runtime.embedded.server import EmbeddedServer
from tests.short_directory import short_directory
from tests.site import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text("utf-8")
MARK = "----8<----"
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/")
STAND_INS = {
    "python3": 'exec "{python}" "$@" --without-pip',
    "pip": """
echo 'import site; site.addsitedir("{packages}")' >"$(echo .venv/lib/*/site-packages)/others.pth"
cp "$HOME/long_work.py" "$HOME/long_work.pth" .venv/lib/*/site-packages
for name in pollconsumer pytest; do
    printf '#!/bin/sh\nexec "%s" -m %s "$@"\n' "$PWD/.venv/bin/python3" $name >.venv/bin/$name
    chmod +x .venv/bin/$name
done
""",
    "crontab": """
case $1 in
-l) cat "$HOME/crontab" 2>/dev/null || {{ echo "no crontab for ada" >&2; exit 1; }} ;;
-) cat >"$HOME/crontab" ;;
-r) rm "$HOME/crontab" ;;
esac
""",
    "sleep": """
launch() {{
    env -i HOME="$HOME" sh -c "$1 --until-empty --linger 5s" </dev/null >>"$HOME/mail" 2>&1
}}
if [ "$1" = 180 ]; then
    : >"$HOME/worked"
    read ended <"$HOME/ended"
    exit
fi
[ ! -f "$HOME/crontab" ] || sed -n 's/^\\* \\* \\* \\* \\* //p' "$HOME/crontab" | sort -r | while read -r line; do
    case $line in
    *"--queue slow") (launch "$line"; echo >"$HOME/ended") & read began <"$HOME/began" ;;
    *) launch "$line" ;;
    esac
done
""",
}
"""What a test must not do, and what does it instead: packages are those of the test, and while the reader sleeps, a
launch of each line of the crontab runs in the environment that cron has; it ends when nothing came for five seconds.
That for long work comes first, and is only waited for until it handles its message, which lasts until the reader has
slept for 180 s."""
LONG_WORK = """
import time
from pathlib import Path


def sleep(seconds, sleep=time.sleep):
    if seconds != 180:
        return sleep(seconds)
    (Path.home() / "began").write_text("\\n")
    (Path.home() / "worked").read_text()


time.sleep = sleep
"""
DIFFERING = {
    r"\b[0-9a-f]{28}\b": "ID",
    r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z": "INSTANT",
    r"\b\d\d:\d\d:\d\d\b": "TIME",
    r"\b\d+(\.\d+)?m?s\b": "DURATION",
    r"crontab of \w+": "crontab of USER",
    r"env XDG_DATA_HOME=\S+ ": "",
    ADDRESS.pattern: "ADDRESS",
    r" {2,}": "  ",
}
"""Patterns of what is another each time, and what stands for it."""


def steps() -> Iterator[tuple[str, str, str]]:
    """What stands before a block of code, its language, and its text."""
    end = 0
    for block in re.finditer(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        yield PAGE[end : block.start()].strip(), block[1], block[2]
        end = block.end()


def script() -> str:
    """Everything that the reader saves and types, with a mark before each block of commands and after the last."""
    parts = ["set -e", "trap : INT"]
    for before, language, text in steps():
        if language == "sh":
            parts += [f"echo '{MARK}'", text.replace("pollconsumer dashboard\n", "pollconsumer dashboard --port 0\n")]
        elif saved := re.search(r"Save this as\s`([\w.]+)`", before):
            parts.append(f"cat >{saved[1]} <<'{MARK}'\n{text}{MARK}")
    return "\n".join([*parts, f"echo '{MARK}'", ""])


def comparable(text: str) -> list[str]:
    for pattern, word in DIFFERING.items():
        text = re.sub(pattern, word, text)
    return [line.strip() for line in text.splitlines() if line.strip(" ~^")]  # Pythons mark other parts of a line


@pytest.fixture
def home() -> Iterator[Path]:
    home = short_directory().resolve()
    (home / "bin").mkdir()
    paths = {"python": sys.executable, "packages": sysconfig.get_path("purelib")}
    for name, text in STAND_INS.items():
        (home / "bin" / name).write_text(f"#!/bin/sh\nset -e\n{text.format(**paths)}\n")
        (home / "bin" / name).chmod(0o755)
    (home / "long_work.py").write_text(LONG_WORK)
    (home / "long_work.pth").write_text("import long_work\n")
    for name in ("began", "worked", "ended"):
        os.mkfifo(home / name)
    yield home
    with suppress(PollConsumerError):
        EmbeddedServer(home / ".local" / "share" / "pollconsumer").stop()
    rmtree(home)


def typed(home: Path) -> list[str]:
    """What appears on the terminal after each block of commands. An address that appears is visited; then Ctrl-C is
    pressed."""
    (home / "script").write_text(script())
    terminal, side = os.openpty()
    termios.tcsetwinsize(side, (50, 160))
    in_control = ["sh", "-c", 'exec sh script <"$0" >"$0" 2>&1', os.ttyname(side)]  # since it is the first to open it
    environment = {"HOME": str(home), "PATH": f"{home}/bin:{os.defpath}", "NO_COLOR": "1"}
    shell = subprocess.Popen(in_control, cwd=home, env=environment, stdin=side, start_new_session=True)
    os.close(side)
    shown, visited = "", False
    try:
        while select.select([terminal], [], [], PATIENCE)[0]:
            shown += os.read(terminal, 4096).decode()
            if (address := ADDRESS.search(shown)) and not visited:
                visited = "order-4" in urlopen(address[0], timeout=PATIENCE).read().decode()
                assert visited
                os.write(terminal, b"\x03")
    except OSError:  # of a terminal that nobody has open
        pass
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        os.close(terminal)
    assert (shell.wait(), visited) == (0, True), shown
    return shown.split(MARK)[1:]


def test_the_tutorial_works_to_the_letter_and_prints_what_it_says(home: Path) -> None:
    *printed, _ = typed(home)
    commands, mailed = 0, []
    for before, language, text in steps():
        if language == "sh":
            commands += 1
        elif language == "text" and not before:
            shown = printed[commands - 1].replace("^C", "").replace(str(home), "/home/ada")
            assert comparable(shown) == comparable(text), shown
        elif language == "text":
            mailed.append(text)
    assert (commands, [(home / "mail").read_text()]) == (len(printed), mailed)
