"""What a handler's module can get wrong: one line, exit code 78."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.site import Site


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("import nowhere", "No module named 'nowhere'"),
        ("raise ValueError('two\\nlines')", "raised ValueError"),
        ("import sys; sys.exit(3)", "exits when it is imported"),
        ("syntax error", "raised SyntaxError"),
        ("class Odd(BaseException): pass\nraise Odd('one')", "importing it raised Odd: one"),
        (
            "from pollconsumer import PollConsumer\na = PollConsumer()\na.handler('x')(print)\na.handler('x')(len)",
            "twice",
        ),
        ("from pollconsumer import PollConsumer\nPollConsumer().handler(max_attempts=0)", "max_attempts"),
        ("from pollconsumer import PollConsumer\nPollConsumer().handler('a b')(print)", "handler name"),
        (
            "from pollconsumer import PollConsumer\nPollConsumer().handler(at_most_once=True)",
            "unknown option: at_most_once; known here: aliases, bulk, bulk_wait, delivery, fatal",
        ),
    ],
)
@pytest.mark.parametrize("command", ["check", "run"])
def test_a_module_that_cannot_be_imported_is_named(site: Site, command: str, module: str, said: str) -> None:
    (site.directory / "handlers.py").write_text(module)
    done = site.command(command)
    assert done.returncode == 78
    *traced, line = done.stderr.splitlines()
    assert said in line
    assert line.startswith("pollconsumer: error: ")
    assert command == "check" or not traced


def test_a_module_of_which_python_has_one_already_is_refused(site: Site) -> None:
    (site.directory / "queue.py").write_text("from handlers import app\n@app.handler('x')\ndef x(): ...\n")
    done = site.command("check", POLLCONSUMER_HANDLERS='["handlers", "queue"]')
    said = "handlers: queue; Python has a module of this name: rename yours"
    assert (done.returncode, done.stderr) == (78, f"pollconsumer: error: {said}\n")


BESIDE = {
    "raising": ("import other\n", "\nraise ValueError('wrong')\n", "ValueError: wrong, at {other}:2"),
    "circular": ("import other\nname = 1\n", "from handlers import name\n", "(most likely due to a circular import)"),
    "circular, where": ("import other\nname = 1\n", "from handlers import name\n", ", at {other}:1"),
    "no module": ("import other\n", "\nimport nowhere\n", "No module named 'nowhere', at {other}:2; is it installed"),
    "syntax": ("import other\n", "\n\nsyntax error\n", "SyntaxError: invalid syntax"),
    "syntax, where": ("import other\n", "\n\nsyntax error\n", ", at {other}:3"),
    "in a library": ("import json\njson.loads('{')\n", "", ", at {handlers}:2"),
    "at registration": (
        "from pollconsumer import PollConsumer\n@PollConsumer().handler\ndef f(context): ...\n",
        "",
        "parameter context of f; annotate it: context: Context for the handler's context, its own type for an argument "
        "of the payload, at {handlers}:2",
    ),
}


@pytest.mark.parametrize("kind", BESIDE)
def test_what_an_import_raised_is_told_with_its_place_and_traced_where_that_is_asked_for(site: Site, kind: str) -> None:
    handlers, other, said = BESIDE[kind]
    (site.directory / "handlers.py").write_text(handlers)
    (site.directory / "other.py").write_text(other)
    said = said.format(other=site.directory / "other.py", handlers=site.directory / "handlers.py")
    for command in (["run"], ["enqueue", "f"], ["-v", "run"], ["-v", "enqueue", "f"], ["check"]):
        done = site.command(*command)
        assert done.returncode == 78
        *traced, line = done.stderr.splitlines()
        assert said in line
        traces = "-v" in command or "check" in command
        assert any("Traceback" in each for each in traced) == traces, done.stderr
        assert not traces or any(f'File "{site.directory}/handlers.py", line ' in each for each in traced)
        assert all(each.startswith(("  ", "pollconsumer: info: configuration: ")) for each in traced)
    (site.directory / "config.toml").write_text('handlers = ["handlers"]\n[logs]\nformat = "json"\n')
    assert "Traceback" in json.loads(site.command("-v", "run").stderr.splitlines()[-1])["traceback"]


@pytest.mark.parametrize("named", ["handlers.py", "handlers:app", "./handlers.py", "handlers.py:app"])
def test_who_names_a_file_or_an_application_is_told_the_module(site: Site, named: str) -> None:
    (site.directory / "config.toml").write_text(f'handlers = ["{named}"]')
    for command in ("run", "check"):
        done = site.command(command)
        assert done.returncode == 78
        assert (
            done.stderr
            == f"pollconsumer: error: config.toml: handlers: {named}; name the module; did you mean handlers?\n"
        )


def test_an_interruption_that_a_module_raises_by_itself_is_its_mistake(site: Site) -> None:
    """A signal raises nothing in a launch."""
    (site.directory / "handlers.py").write_text("raise KeyboardInterrupt")
    done = site.command("run")
    assert done.returncode == 78
    assert done.stderr.count("\n") == 1
    assert "importing it raised KeyboardInterrupt" in done.stderr


def test_of_a_handler_that_is_registered_twice_both_places_are_named(site: Site) -> None:
    first = "from pollconsumer import PollConsumer\napp = PollConsumer()\n@app.handler('x')\ndef one() -> None: ...\n"
    (site.directory / "first.py").write_text(first)
    (site.directory / "second.py").write_text(f"# a line\n{first}")
    (site.directory / "config.toml").write_text('handlers = ["first", "second"]')
    done = site.command("check")
    assert done.returncode == 78
    assert f"x; at {site.directory}/first.py:3 and at {site.directory}/second.py:4; give one" in done.stderr
    (site.directory / "config.toml").write_text('handlers = ["first"]\n[commands.x]\ncommand = ["true"]\n')
    assert f"as a function at {site.directory}/first.py:3 and as a command" in site.command("check").stderr


def test_a_file_that_is_imported_under_two_names_is_told_from_two_handlers_of_one_name(site: Site) -> None:
    module = "from pollconsumer import PollConsumer\n@PollConsumer().handler('x')\ndef one() -> None: ...\n"
    (site.directory / "within").mkdir()
    (site.directory / "within" / "again.py").write_text(module)
    (site.directory / "handlers.py").write_text("import sys\nsys.path.append('within')\nimport again, within.again\n")
    done = site.command("check")
    assert done.returncode == 78
    assert "again.py:2 was imported as again and as within.again; import it under one name" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_launch_without_handlers_says_so_and_parks(site: Site) -> None:
    (site.directory / "config.toml").write_text("")
    message = site.enqueue("record", name="a")
    done = site.drain()
    assert done.returncode == 0
    assert "no handlers" in done.stderr
    assert site.state(message) == "scheduled"


def test_an_application_in_a_module_has_the_settings_of_the_command(site: Site) -> None:
    (site.directory / "handlers.py").write_text(
        "from pollconsumer import PollConsumer\napp = PollConsumer()\n"
        "@app.handler\ndef first() -> None:\n    second.enqueue()\n"
        "@app.handler\ndef second() -> None:\n    pass\n"
    )
    site.command("--namespace", "other", "enqueue", "first")
    assert site.command("--namespace", "other", "run", "--until-empty").returncode == 0
    queues = site.json("--namespace", "other", "status")["queues"]
    assert [(queue["name"], queue["completed"]) for queue in queues] == [("default", 2)]


def test_check_names_queues_that_nobody_here_serves(site: Site) -> None:
    (site.directory / "config.toml").write_text('handlers = ["handlers"]\n[consumer]\nqueues = ["default"]\n')
    (site.directory / "handlers.py").write_text(
        "from pollconsumer import PollConsumer\n@PollConsumer().handler(queue='mail')\ndef send() -> None: ...\n"
    )
    assert site.json("check")["queues_not_served"] == ["mail"]
