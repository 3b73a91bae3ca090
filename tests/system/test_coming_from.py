"""The code of docs/from-rq.md, docs/from-celery.md and docs/from-crontab.md, as their readers run it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.site import Site

DOCS = Path(__file__).parents[2] / "docs"


def code(page: str, language: str, section: str = "") -> list[str]:
    """The blocks of the page, or of one of its sections, by its heading."""
    text = (DOCS / page).read_text("utf-8")
    if section:
        text = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def run_program(site: Site, page: str) -> str:
    """Install the page's handlers, and run its program. Returns what that printed."""
    handlers, program = code(page, "python")
    (site.directory / "work.py").write_text(handlers)
    (site.directory / "config.toml").write_text('handlers = ["work"]\n')
    process = site.start_program([sys.executable, "-c", f"import sys; sys.path.insert(0, '.')\n{program}"])
    output, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    return str(output)


def test_the_code_for_readers_who_come_from_rq(site: Site) -> None:
    assert run_program(site, "from-rq.md") == "ready True\n[True]\n"
    done = site.drain()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (report,) = site.json("list", "--handler", "report")
    assert report["result"] == "3 words, for ada"
    reminders = site.json("list", "--handler", "remind", "--limit", "99")
    assert sorted(each["state"] for each in reminders) == ["completed"] * 60 + ["scheduled"]


def test_the_code_for_readers_who_come_from_celery(site: Site) -> None:
    assert run_program(site, "from-celery.md") == "ready\n"
    done = site.command("-v", "run", "--until-empty", "--linger", "1s")
    assert (done.returncode, done.stdout) == (0, "")
    assert "connected" in done.stderr
    finished = site.json("list", "--state", "completed")
    assert [message["result"] for message in finished] == ["sent to ada@example.org at attempt 2"] * 2
    names = {entry["name"] for entry in site.json("recurrences", "list")}
    assert names == {"nightly", "digest:ada"}


def test_the_configuration_for_readers_who_come_from_a_crontab(site: Site) -> None:
    (settings,) = code("from-crontab.md", "toml")
    (site.directory / "config.toml").write_text(settings)
    (commands,) = code("from-crontab.md", "sh")
    launch(site)
    for line in commands.splitlines():
        words = line.partition("#")[0].split()[1:]
        done = site.command(*words)
        assert (done.returncode, done.stderr) == (0, ""), line
        if "trigger" in words:
            launch(site)
    (finished,) = site.json("list", "--state", "completed")
    assert finished["result"] == {"exit_code": 0, "output": "saved db1\n"}


def launch(site: Site) -> None:
    """Run the launches of the page's crontab, each until its queue is empty, not for the rest of an hour, which may be
    a second. The slow one is first: the other one warns of queues for which no launch has come."""
    (crontab,) = re.findall(r"^```\n([^`]*?)```", (DOCS / "from-crontab.md").read_text("utf-8"), re.MULTILINE)
    launches = [line for line in crontab.splitlines() if " run " in line]
    assert len(launches) == 2
    for line in reversed(launches):
        queue = re.search(r"--queue (\S+)", line)
        done = site.drain(*(["--queue", queue[1]] if queue else []))
        assert (done.returncode, done.stderr) == (0, ""), line
