"""Where the configuration is found, and what is said and refused where none is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import pytest

from pollconsumer import PollConsumer
from pollconsumer.core.errors import ConfigurationError
from pollconsumer.interface.api.registry import registry
from pollconsumer.interface.cli.group import CHANGING, group
from pollconsumer.interface.settings.load import Beside, beside_module, found_above, load_settings
from pollconsumer.interface.settings.model import Settings
from pollconsumer.interface.settings.owners import refuse_found_of_others
from pollconsumer.runtime.system.watchdog import lift
from pollconsumer.testing import Sandbox
from tests.inner import calls_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.site import Site
    from tests.store.servers import Server

OURS = 'namespace = "ours"\n'
MAKES = """
from pollconsumer import PollConsumer
from pollconsumer.interface.api.app import calls_of
made = calls_of(PollConsumer()).settings()
print(made.config, made.nowhere)
"""
READING = frozenset(
    (
        *("run", "move", "status", "list", "dead list", "dead show", "recurrences history", "recurrences list"),
        *(
            "recurrences next",
            "queue list",
            "batch list",
            "batch members",
            "batch show",
            "launches",
            "audit",
            "lease show",
            "check",
        ),
        *("metrics", "doctor", "dashboard", "store backup", "store export", "store path", "store start"),
        *("store status", "store stop", "init", "completion"),
    )
)
"""Commands that change no message, and launches, which refuse by themselves."""
ARGUMENTS = {
    "enqueue": ("mail",),
    "signal": ("a", "b"),
    "reschedule": ("a", "--in", "1m"),
    "rerun": ("a",),
    "cancel": ("a",),
    "lease break": ("--role", "mover", "--yes"),
    "dead redrive": ("a",),
    "dead purge": ("a", "--yes"),
    "recurrences add": ("a", "b", "--every", "1m"),
    "store import": ("-",),
    "store reopen": ("--yes",),
}
FOREIGN = [
    'title = "A blog"\nbaseURL = "/"\n[params]\nstore = "x"\nnamespace = "y"\n',
    "# namespace\n[server]\nport = 1\n",
    "",
    "\x00\x01",
]
OF_OURS = [OURS, "\ufeffhandlers = []", '[consumer]\ntimeout = "5m"', "[queues.mail]\nweight = 2", "[commands.'b']"]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project with a directory below, the current one, and no variables of ours."""
    for name in [name for name in os.environ if name.startswith("POLLCONSUMER_")]:
        monkeypatch.delenv(name)
    place = tmp_path / "project"
    (place / "sub" / "deep").mkdir(parents=True)
    monkeypatch.chdir(place / "sub" / "deep")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for kind in ("DATA", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    yield place
    lift()  # the alarm of a command that was refused


@pytest.fixture
def outside() -> Iterator[None]:
    """No command runs."""
    with registry.afresh():
        yield


def leaves(command: click.Command, context: click.Context, path: str = "") -> Iterator[str]:
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from leaves(inner, context, f"{path} {name}".strip())
    else:
        yield path


def test_every_command_reads_or_changes() -> None:
    with group.make_context("pollconsumer", ["check"], resilient_parsing=True) as context:
        assert {*leaves(group, context)} == READING | CHANGING
    assert not READING & CHANGING


@pytest.mark.parametrize("command", sorted(CHANGING))
def test_nothing_is_changed_where_nothing_says_in_which_store(
    command: str, run: Callable[..., tuple[int, str, str]], project: Path, tmp_path: Path
) -> None:
    code, out, err = run(*command.split(), *ARGUMENTS.get(command, ("a",) if command != "store adopt" else ()))
    line = f"no config.toml in {project / 'sub' / 'deep'} or above it; --config names one, 'pollconsumer init project'"
    assert (code, out, err) == (78, "", f"pollconsumer: error: {line} begins one\n")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("options", [(), ("--quiet",), ("--json",)])
def test_the_alarm_calls_no_store_well_that_nobody_named(
    options: tuple[str, ...], run: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    code, out, err = run("doctor", *options)
    assert (code, out, err.count("\n")) == (78, "", 1)
    assert err.startswith("pollconsumer: error: no config.toml in ")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("launch", ["run --until-empty", "run -v", "move"])
def test_a_launch_without_handlers_is_refused_where_nothing_says_in_which_store(launch: str, project: Path) -> None:
    assert "error: no config.toml in " in started("-m", "pollconsumer", *launch.split(), at=project)


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (("store", "status"), 1),
        (("-q", "store", "status"), 0),
        (("store", "status", "--json"), 0),
        (("--namespace", "mine", "store", "status"), 0),
        (("--store", "embedded", "store", "status"), 0),
        (("completion", "bash"), 0),
    ],
)
def test_a_command_that_reads_says_it_once(
    arguments: tuple[str, ...], lines: int, run: Callable[..., tuple[int, str, str]]
) -> None:
    code, _, err = run(*arguments)
    assert (code, err.count("no config.toml in "), err.count("\n")) == (0, lines, lines)


def test_a_command_without_the_variables_that_launches_get_from_a_file_warns(
    run: Callable[..., tuple[int, str, str]], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "config.toml").write_text(OURS)
    file = project / "pollconsumer.env"
    file.write_text("# launches\nPOLLCONSUMER_DATA='/srv/data'\nPOLLCONSUMER_STORE='redis://:secret@h/1'\nPATH='x'\n")
    monkeypatch.chdir(project)
    warning = (
        "pollconsumer: warning: not set: {}; launches get it from {}: in its directory type "
        "'set -a; . ./pollconsumer.env; set +a' first\n"
    )
    code, _, errors = run("store", "status")
    assert (code, errors) == (0, warning.format("POLLCONSUMER_DATA, POLLCONSUMER_STORE", file))
    assert run("--store", "embedded", "store", "status")[2] == warning.format("POLLCONSUMER_DATA", file)
    monkeypatch.setenv("POLLCONSUMER_DATA", str(project))
    monkeypatch.setenv("POLLCONSUMER_STORE", "embedded")
    assert run("store", "status")[2] == ""
    monkeypatch.delenv("POLLCONSUMER_STORE")
    file.write_bytes(b"\xff")
    assert run("store", "status")[2] == ""


@pytest.mark.parametrize("name", ["STORE", "NAMESPACE", "CLIENT", "DATA"])
def test_a_variable_says_where(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = {"STORE": "embedded", "NAMESPACE": "mine", "CLIENT": "a:b", "DATA": str(tmp_path)}
    assert load_settings().nowhere is not None
    monkeypatch.setenv(f"POLLCONSUMER_{name}", given[name])
    assert load_settings().nowhere is None
    monkeypatch.setenv(f"POLLCONSUMER_{name}", "")
    assert load_settings().nowhere is not None


@pytest.mark.parametrize("content", OF_OURS)
def test_a_file_of_ours_is_found_above(content: str, project: Path) -> None:
    (project / "config.toml").write_text(content)
    assert found_above(project / "sub" / "deep") == project / "config.toml"


@pytest.mark.parametrize("content", FOREIGN)
def test_a_file_of_another_program_is_passed_over_above_and_read_here(content: str, project: Path) -> None:
    (project / "config.toml").write_text(OURS)
    (project / "sub" / "config.toml").write_text(content)
    assert load_settings().config == project / "config.toml"
    (project / "sub" / "deep" / "config.toml").write_text("")
    assert load_settings().config == project / "sub" / "deep" / "config.toml"


def test_a_file_of_ours_with_an_error_is_found_and_named(project: Path) -> None:
    (project / "config.toml").write_text('[consumer]\ntimeout = "5x"\n')
    with pytest.raises(ConfigurationError, match=f"^{project}/config.toml: consumer.timeout: 5x; "):
        load_settings()


@pytest.mark.parametrize("command", ["status", "check", "run", "move"])
def test_an_error_about_a_server_that_is_not_there_names_what_named_that_server(command: str, site: Site) -> None:
    store = f"unix://{site.directory}/nowhere"
    (site.directory / "config.toml").write_text(f'store = "{store}/3"\n')
    hasty = ("--timeout", "100ms", "--min-margin", "1ms") if command in ("run", "move") else ()
    site.constants = {"COMMAND_BUDGET": 0.05, "REACH_BUDGET": 0.05}

    def line(*flags: str, **variables: str) -> str:
        done = site.command(*flags, command, *hasty, **variables)
        assert done.returncode == 69
        return done.stderr.splitlines()[-1].partition("store unreachable: ")[2]

    says = "it says: No such file or directory; see whether the server is started, and the address right"
    assert line() == f"{store}/3; {says}: store in config.toml names it"
    assert line("--store", f"{store}/4") == f"{store}/4; {says}: --store names it"
    assert line(POLLCONSUMER_STORE=f"{store}/5") == f"{store}/5; {says}: POLLCONSUMER_STORE names it"
    assert line("--store", f"{store}/6", POLLCONSUMER_STORE=f"{store}/5") == f"{store}/6; {says}: --store names it"


def test_an_error_about_what_a_variable_has_set_names_no_file(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "config.toml").write_text(OURS)
    monkeypatch.setenv("POLLCONSUMER_CONSUMER__TIMEOUT", "5x")
    with pytest.raises(ConfigurationError, match=r"^POLLCONSUMER_CONSUMER__TIMEOUT: 5x; "):
        load_settings()


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_the_search_ends_before_a_directory_that_others_may_write(mode: int, project: Path) -> None:
    (project / "config.toml").write_text(OURS)
    (project / "sub").chmod(mode)
    assert found_above(project / "sub" / "deep") is None
    (project / "sub").chmod(0o755)
    assert found_above(project / "sub" / "deep") is not None


def test_a_directory_or_a_pipe_above_is_passed_over(project: Path) -> None:
    (project / "config.toml").write_text(OURS)
    os.mkfifo(project / "sub" / "config.toml")
    assert found_above(project / "sub" / "deep") == project / "config.toml"


def test_a_found_file_of_another_user_is_refused_but_beside_a_module_of_that_user(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can give a file away")
    path = tmp_path / "config.toml"
    path.write_text(OURS)
    os.chown(path, 61002, 61002)
    with pytest.raises(ConfigurationError, match="is another user's"):
        refuse_found_of_others(path)
    with pytest.raises(ConfigurationError, match="is another user's"):
        refuse_found_of_others(path, 61003)
    refuse_found_of_others(path, 61002)


def started(*arguments: object, at: Path) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=at, capture_output=True, text=True, timeout=90, check=False
    )
    return (done.stdout + done.stderr).strip()


def test_an_application_finds_the_file_beside_its_module_wherever_it_is_started(project: Path, tmp_path: Path) -> None:
    (project / "config.toml").write_text(OURS)
    (tmp_path / "config.toml").write_text('namespace = "of the current directory"')
    found = f"{project / 'config.toml'} None"
    for module in (project / "shop.py", project / "sub" / "shop.py"):
        module.write_text(MAKES)
        assert started(module, at=tmp_path) == found
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "shop").symlink_to(project / "sub" / "shop.py")
    (tmp_path / "config.toml").unlink()
    assert started(tmp_path / "bin" / "shop", at=tmp_path) == found
    assert started("-c", MAKES, at=project / "sub") == found
    assert started("-c", MAKES, at=tmp_path) == f"None no config.toml in {tmp_path} or above it"


def test_an_archive_has_no_directory_of_its_own(project: Path, tmp_path: Path) -> None:
    (project / "config.toml").write_text(OURS)
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "__main__.py").write_text(MAKES)
    started("-m", "zipapp", tmp_path / "packed", "-o", tmp_path / "shop.pyz", at=tmp_path)
    assert started(tmp_path / "shop.pyz", at=project / "sub") == f"{project / 'config.toml'} None"


def test_an_installed_module_is_looked_up_from_the_current_directory_last(project: Path, tmp_path: Path) -> None:
    module = tmp_path / "venv" / "site-packages" / "shop.py"
    module.parent.mkdir(parents=True)
    module.write_text("")
    here = project / "sub" / "deep"
    assert beside_module(str(module)) == Beside((module.parent, here), module.stat().st_uid)


@pytest.mark.usefixtures("outside")
def test_an_application_that_nothing_tells_where_warns_once(caplog: pytest.LogCaptureFixture, valkey: Server) -> None:
    app = PollConsumer()
    calls_of(app).beside = lambda: None
    settings = load_settings()
    settings.store = valkey.url
    calls_of(app)._own_settings = settings  # noqa: SLF001  # no embedded server is started for it
    app.enqueue("mail")
    app.enqueue("mail")
    warned = [record.getMessage() for record in caplog.records if "no config.toml" in record.getMessage()]
    assert len(warned) == 1
    assert warned[0].endswith("give it config= or POLLCONSUMER_CONFIG")


def test_a_sandbox_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    app = PollConsumer()
    app.handler("mail")(lambda: None)
    with Sandbox(app) as sandbox:
        app.enqueue("mail")
        assert sandbox.run().handled == 1
    assert not [record for record in caplog.records if "config" in record.getMessage()]


@pytest.mark.usefixtures("outside")
def test_applications_with_another_configuration_are_found(project: Path) -> None:
    for place in (project, project / "sub"):
        (place / "config.toml").write_text(OURS)
    app = PollConsumer()
    calls_of(app).beside = lambda: Beside((project,), os.geteuid())
    other, same = (Settings(config=place / "config.toml") for place in (project / "sub", project))
    assert registry.other_configs(other) == [project / "config.toml"]
    assert registry.other_configs(same) == []
    calls_of(PollConsumer(namespace="elsewhere")).beside = lambda: Beside((project / "sub",), os.geteuid())
    assert registry.other_configs(same) == []
