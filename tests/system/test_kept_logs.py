"""What handlers log and print, seen from outside while real launches handle their messages, and afterwards."""

from __future__ import annotations

import logging
import signal
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.runtime.handling.kept_lines import CUT
from tests.leaving_out import long
from tests.site import Site, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

HANDLERS = """
import asyncio, contextlib, io, logging, sys
log = logging.getLogger("shop.mail")

def says(name):
    print("printed", name)
    print("aside", name, file=sys.stderr)
    log.info("logged %s", name)
    log.debug("too low")
    with contextlib.redirect_stdout(io.StringIO()):
        print("redirected")

@app.handler
def plain(name: str) -> None:
    says(name)

@app.handler
async def awaiting(name: str) -> None:
    await asyncio.sleep(0)
    says(name)

@app.handler(isolation="process")
def isolated(name: str) -> None:
    says(name)

@app.handler(bulk=10)
def bulky(items: list[Item]) -> None:
    for each in items:
        print("handled", each.payload["name"])

@app.handler
def quiet() -> None:
    pass

@app.handler(max_attempts=2, retry=Backoff(0.01))
def failing(context: Context) -> None:
    print("attempt", context.attempt)
    raise ValueError("no")

@app.handler
def going(name: str) -> None:
    print("before the gate", name)
    note("at the gate")
    while not (HERE / "gate").exists():
        time.sleep(0.005)
    print("after the gate", name)

@app.handler(isolation="process")
def going_apart(name: str) -> None:
    going(name)

@app.handler(isolation="process", max_attempts=1)
def dying() -> None:
    print("last line")
    while True:
        time.sleep(0.005)
        if (HERE / "gate").exists():
            os._exit(3)

@app.handler
def flooding() -> None:
    for n in range(20000):
        print("line", n)
"""
CODEC = """
class Flipping:
    def encode(self, data):
        return bytes(each ^ 0xFF for each in data)
    decode = encode

app = PollConsumer(codec=Flipping())

@app.handler
def sealed(name: str) -> str:
    print("secret", name)
    return name
"""


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site('[consumer]\nmin_margin = "100ms"\nestimated_duration = "1ms"\n')
    with (site.directory / "handlers.py").open("a") as handlers:
        handlers.write("from pollconsumer import Context, Item\n")
        handlers.write(HANDLERS)
    yield site
    site.close()


def logged(site: Site, message_id: str) -> list[tuple[int, str]]:
    return [(each["attempt"], each["text"]) for each in site.json("status", message_id)["log"]]


@pytest.mark.parametrize(
    ("handler", "slots"),
    [
        ("plain", "1"),
        ("plain", "2"),
        long("awaiting", "1"),
        ("awaiting", "2"),
        ("isolated", "1"),
        long("isolated", "2"),
    ],
)
def test_what_a_handler_logs_and_prints_is_kept_with_its_message(site: Site, handler: str, slots: str) -> None:
    ids = {name: site.enqueue(handler, name=name) for name in ("ann", "bob")}
    silent = site.enqueue("quiet")
    site.drain("--concurrency", slots)
    for name, message in ids.items():
        ((attempt, text),) = logged(site, message)
        printed, aside, record = text.splitlines()
        assert (attempt, printed, aside) == (1, f"printed {name}", f"aside {name}")
        assert record.endswith(f"Z info shop.mail: logged {name}")
    assert logged(site, silent) == []
    shown = site.command("status", ids["ann"]).stdout
    assert "log of attempt 1, reserved at 2" in shown
    assert "  printed ann\n" in shown
    assert "log of" not in site.command("status", silent).stdout


def test_nothing_is_kept_where_the_settings_say_so(site: Site) -> None:
    message = site.enqueue("plain", name="ann")
    done = site.command("run", "--until-empty", POLLCONSUMER_LOGS__KEEP="0")
    assert done.stdout == "printed ann\n"
    assert logged(site, message) == []


def test_the_log_of_the_launch_stays_as_it_is(site: Site) -> None:
    site.enqueue("plain", name="ann")
    done = site.command("run", "--until-empty")
    assert (done.stdout, done.stderr) == ("printed ann\n", "aside ann\n")


def test_each_attempt_has_its_lines_and_a_dead_letter_shows_them(site: Site) -> None:
    message = site.enqueue("failing")
    while site.state(message) != "dead":
        site.drain()
    assert logged(site, message) == [(1, "attempt 1\n"), (2, "attempt 2\n")]
    shown = site.command("dead", "show", message).stdout
    assert shown.index("ValueError: no") < shown.index("log of attempt 1") < shown.index("log of attempt 2")
    assert [each["attempt"] for each in site.json("dead", "show", message)["log"]] == [1, 2]


@pytest.mark.parametrize(("handler", "slots"), [("going", "1"), long("going", "2"), ("going_apart", "1")])
def test_lines_are_shown_while_the_handler_runs_and_remain_when_its_launch_is_killed(
    site: Site, handler: str, slots: str
) -> None:
    site.constants = {"LINES_EVERY": 0.05}
    message = site.enqueue(handler, name="ann")
    launch = site.start("run", "--until-empty", "--concurrency", slots)
    site.await_note("at the gate")
    wait_until(lambda: logged(site, message) == [(1, "before the gate ann\n")], "the lines")
    launch.send_signal(signal.SIGKILL)
    launch.wait(90)
    assert logged(site, message) == [(1, "before the gate ann\n")]
    site.open_gate()
    site.drain()
    assert logged(site, message) == [
        (1, "before the gate ann\n"),
        (2, "before the gate ann\nafter the gate ann\n"),
    ]


def test_a_process_that_dies_leaves_what_it_had_told(site: Site) -> None:
    site.constants = {"LINES_EVERY": 0.05}
    message = site.enqueue("dying")
    launch = site.start("run", "--until-empty")
    wait_until(lambda: logged(site, message) == [(1, "last line\n")], "the lines")
    site.open_gate()
    assert launch.wait(90) == 0
    assert (site.state(message), logged(site, message)) == ("dead", [(1, "last line\n")])


def test_messages_of_a_bulk_call_have_the_lines_of_the_call(site: Site) -> None:
    ids = [site.enqueue("bulky", name=name) for name in "abc"]
    site.drain()
    (lines,) = {tuple(logged(site, message)) for message in ids}
    assert lines == ((1, "handled a\nhandled b\nhandled c\n"),)


def test_of_a_flood_the_end_is_kept(site: Site) -> None:
    message = site.enqueue("flooding")
    site.drain()
    ((_, text),) = logged(site, message)
    assert text.startswith(CUT)
    assert text.endswith("line 19998\nline 19999\n")
    assert len(text) == len(CUT) + 8192


def test_lines_are_encoded_by_the_codec(site: Site) -> None:
    (site.directory / "handlers.py").write_text(f"from pollconsumer import PollConsumer\n{CODEC}")
    message = site.enqueue("sealed", name="ann")
    site.drain()
    ((_, text),) = logged(site, message)
    shown: Any = text
    assert shown == {"encoded_bytes": len('"secret ann\\n"')}
    assert "{" in site.command("status", message).stdout.partition("log of attempt 1")[2]


def test_a_root_logger_that_users_code_configures_decides_what_is_kept(site: Site) -> None:
    with (site.directory / "handlers.py").open("a") as handlers:
        handlers.write("\nlogging.getLogger().setLevel(logging.DEBUG)\n")
    message = site.enqueue("plain", name="ann")
    site.drain()
    ((_, text),) = logged(site, message)
    assert "debug shop.mail: too low" in text
    assert logging.getLogger().level != logging.DEBUG


CONFIGURES = """
import logging.config
PRINTS = {"class": "logging.StreamHandler", "stream": "ext://sys.stdout"}
CONFIGURED = {"version": 1, "disable_existing_loggers": False, "handlers": {"prints": PRINTS},
              "root": {"handlers": ["prints"], "level": "INFO"}}
logging.config.dictConfig(CONFIGURED)

@app.handler
def configures() -> None:
    logging.config.dictConfig(CONFIGURED)

@app.handler(isolation="process")
def configures_apart() -> None:
    configures()
"""


@pytest.mark.parametrize(("configures", "handler"), [("configures", "plain"), ("configures_apart", "isolated")])
def test_lines_are_kept_once_after_users_code_has_replaced_the_root_loggers_handlers(
    site: Site, configures: str, handler: str
) -> None:
    with (site.directory / "handlers.py").open("a") as handlers:
        handlers.write(CONFIGURES)
    messages = [site.enqueue(handler, name="ann")]
    site.enqueue(configures)
    messages.append(site.enqueue(handler, name="bob"))
    site.drain()
    for message, name in zip(messages, ("ann", "bob"), strict=True):
        ((_, text),) = logged(site, message)
        assert text.count(f"logged {name}") == 1
