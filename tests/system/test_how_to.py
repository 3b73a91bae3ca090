"""The code of docs/how-to-*.md, batches.md, producers.md, as readers run it: the first block is work.py, others are
programs."""

from __future__ import annotations

import re
import shlex
import sys
from typing import TYPE_CHECKING

from tests.system.test_coming_from import code

if TYPE_CHECKING:
    import subprocess

    from tests.site import Site


def install(site: Site, page: str, section: str = "") -> list[str]:
    """Install the module of the page, or of one of its sections. Returns its programs."""
    handlers, *programs = code(page, "python", section)
    (site.directory / "work.py").write_text(handlers)
    (site.directory / "config.toml").write_text("\n".join(['handlers = ["work"]', *code(page, "toml", section)]))
    return programs


def start(site: Site, program: str) -> subprocess.Popen[str]:
    return site.start_program([sys.executable, "-c", f"import sys; sys.path.insert(0, '.')\n{program}"])


def run(site: Site, program: str) -> str:
    process = start(site, program)
    output, errors = process.communicate()
    assert (process.returncode, errors) == (0, ""), program
    return str(output)


def states(site: Site, handler: str) -> list[str]:
    return sorted(each["state"] for each in site.json("list", "--handler", handler))


def test_what_the_page_on_sending_tells_is_so(site: Site) -> None:
    *programs, last = install(site, "how-to-send.md")
    for program in programs:
        assert run(site, program) == ""
    assert states(site, "mail") == ["cancelled", *["ready"] * 4, "scheduled"]
    asking = start(site, last)
    while asking.poll() is None:
        assert site.drain("--linger", "1s").returncode == 0
    assert asking.communicate() == ("sent to ada@example.org\n" * 2, "")
    assert states(site, "charge") == ["completed"]
    assert states(site, "mail") == ["cancelled", *["completed"] * 6, "scheduled"]


def test_what_the_page_on_limits_tells_is_so(site: Site) -> None:
    for program in install(site, "how-to-limit.md"):
        assert run(site, program) == ""
    assert states(site, "sync") == ["ready"] * 7
    (crontab,) = code("how-to-limit.md", "text")
    for line in crontab.splitlines():
        words = shlex.split(line.partition("config.toml")[2])
        queue = words[words.index("--queue") + 1]
        done = site.drain("--queue", queue)  # not for the rest of a quarter of an hour, which may be a second
        assert (done.returncode, done.stderr) == (0, ""), line
        site.enqueue("render", film="m")
    assert states(site, "sync") == ["completed"] * 7
    assert states(site, "render") == ["completed", "ready"]


def test_what_the_page_on_managing_messages_tells_is_so(site: Site) -> None:
    audit, program = install(site, "how-to-manage.md")
    assert site.drain().returncode == 0  # it defines the recurrence
    tried, *blocks = code("how-to-manage.md", "sh")
    trigger, launch = (line.split()[1:] for line in tried.splitlines())
    report = site.command(*trigger).stdout.strip()
    done = site.command(*launch)
    assert done.stdout == ""
    assert f"dead letter: {report} (report), attempt 2: OSError: printer on fire" in done.stderr
    assert states(site, "mail") == ["completed"]
    assert site.json("status", report)["progress"]["note"] == "chapter 3"
    assert run(site, program) == ""
    for line in "".join(blocks).splitlines():
        words = line.partition("#")[0].split()[1:]
        if words[0] == "cancel":
            message = site.enqueue("mail", "--in", "1h", to="ada", subject="a")
        elif words[0] == "rerun":
            (message,) = [each["id"] for each in site.json("list", "--handler", "mail", "--state", "completed")]
        else:
            message = report
        shown = site.command(*(message if word == "ID" else word for word in words))
        assert (shown.returncode, shown.stderr) == (0, ""), line
    assert states(site, "report") == ["ready"]
    assert site.command("reschedule", report, "--priority", "1").returncode == 0
    assert re.search(rf"^[-\d]+ [:.+\d]+ \S+@\S+ change default \('{report}',\) 1$", run(site, audit), re.MULTILINE)


def test_what_the_page_on_batches_tells_is_so(site: Site) -> None:
    batch, look, redrive, read, grow, nightly, inner, chain, callbacks, options = install(site, "batches.md")
    assert run(site, batch) == ""
    assert handled(site) == ["c.txt: Fatal: no table", "import-42: 2 of 3"]
    failure = "import-42.2 {'path': 'c.txt'} Fatal: no table\n"
    assert run(site, look) == f"ended 1\n{failure}"
    assert reported_again(site, redrive) == (f"1 failed again\n{failure}", [])
    correct(site)
    assert reported_again(site, redrive) == ("0 failed again\n", ["day 1: 30 rows"])
    assert run(site, read) == "0 10\n1 10\n2 10\n"
    assert run(site, grow) + run(site, nightly) == ""
    assert handled(site) == ["of-monday: 1 of 1", "tree: 3 of 3"]
    assert run(site, inner) == ""
    assert handled(site, "--linger", "1s") == ["day 0: 0 rows", "day 1: 20 rows", "day 2: 20 rows", "year: 2 of 2"]
    assert run(site, chain) == "waiting\n"
    assert handled(site) == ["chain dead, None"]
    assert run(site, callbacks) == ""
    assert handled(site) == ["fetched completed, one two three"]
    assert run(site, options) == ""
    assert handled(site, "--linger", "1s") == []
    assert states(site, "count") == ["completed", "dead"]
    assert {f"day-8-{n}" for n in range(2)} | {"urgent.0"} < {each["id"] for each in site.json("list", "--limit", "99")}


def test_a_message_in_a_table_is_enqueued_if_its_order_is_committed_and_once(site: Site) -> None:
    program, *_ = install(site, "producers.md", "In your database's transaction")
    (site.directory / "config.toml").write_text('handlers = ["work"]\n')
    undone = program.replace('"A-17")\nsend', '"A-16")\n    connection.rollback()\nsend')
    nudge = "from work import send_outgoing\nsend_outgoing.using(key='now').enqueue()\n"
    assert "rollback" in undone
    assert run(site, undone) + run(site, program) == ""
    assert handled(site, "--linger", "1s") == ["charged A-17"]
    sent_before_its_death = """
from work import *
with engine.begin() as connection:
    enqueue_in(connection, "charge", order="A-18")
    (each,) = connection.execute(select(outgoing)).all()
app.enqueue(each.handler, each.payload, id=each.id)
"""
    assert run(site, sent_before_its_death) == ""
    assert handled(site) == ["charged A-18"]
    assert run(site, nudge) == ""
    assert handled(site, "--linger", "1s") == []
    assert run(site, "from work import *\nwith engine.begin() as c: print(c.execute(select(outgoing)).all())") == "[]\n"


def handled(site: Site, *options: str) -> list[str]:
    """What handlers printed in a launch."""
    done = site.drain(*options)
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


def reported_again(site: Site, program: str) -> tuple[str, list[str]]:
    """What a program that redrives and waits has printed at its end, and what handlers printed meanwhile."""
    asking, printed = start(site, program), list[str]()
    while asking.poll() is None:
        printed += handled(site)
    output, errors = asking.communicate()
    assert (asking.returncode, errors) == (0, "")
    return output, printed + handled(site)


def correct(site: Site) -> None:
    """Let the page's handler read all files, as its author would before a redrive."""
    module = site.directory / "work.py"
    module.write_text(module.read_text().replace('not path.endswith(".csv")', "not path"))
