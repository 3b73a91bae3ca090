"""``init``: files that launch a configuration as it is, in each platform's own syntax, without its password."""

from __future__ import annotations

import json
import os
import plistlib
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
from redis import Redis

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.core.notation.cron_expression import Cron
from pollconsumer.core.notation.instants import datetime_of
from pollconsumer.interface.cli.group import group
from pollconsumer.interface.logs import logs
from pollconsumer.interface.settings.model import CommandSettings, ConsumerSettings, MoverSettings, Settings, changed
from pollconsumer.platform_files import calendar
from pollconsumer.platform_files.files import PRIVATE, File
from pollconsumer.platform_files.init_command import LOCAL, PLATFORMS
from pollconsumer.platform_files.installation import STORE, Installation
from pollconsumer.store.actions import MessageActions
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.reading.inspector import Inspector
from tests.conftest import NAMESPACE
from tests.interface.deployed import DEPLOY, deployed, installation
from tests.store.acting import QUEUE, Launch, message
from tests.terminal import Screen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.site import Site
    from tests.store.servers import Server

PASSWORD = "hunter2hunter2"
URL = f"redis://app:{PASSWORD}@redis.example:6380/2"
BY_REFERENCE = {"github", "cloudrun", "ecs", "containerapps", "heroku", "render", "railway", "gitlab"}
"""Platforms that keep the values of variables themselves: no file has them."""
ODD = """a b%c$d'e;f"""
"""A directory's name that means something in every syntax."""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    for kind in ("CACHE", "DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    (tmp_path / "config.toml").write_text('[consumer]\nqueues = ["default", "mail"]\nschedule = "* * * * *"\n')
    yield tmp_path
    logs.configure()


def installed(settings: Settings | None = None, **changed: Any) -> Installation:
    directory = Path("/etc/pollconsumer")
    settings = settings or Settings(store=URL, directory=directory, config=directory / "config.toml")
    return Installation(settings, **({"program": ("/opt/p/bin/pollconsumer",), "user": "ada"} | changed))


def text_of(files: list[File], ending: str) -> str:
    [found] = [file.text for file in files if file.name.endswith(ending)]
    return found


def without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


# The repository's examples


@pytest.mark.parametrize("path", deployed(), ids=lambda path: path.relative_to(DEPLOY.parent).as_posix())
def test_deploy_holds_the_output_for_the_example_configuration(path: Path) -> None:
    assert path.read_text() == deployed()[path].text, "python -m tests.interface.deployed writes it again"


def test_deploy_holds_nothing_else_that_launches() -> None:
    watching = {DEPLOY / "grafana", DEPLOY / "prometheus"}
    assert {path for path in DEPLOY.rglob("*") if path.is_file() and path.parent not in watching} == {
        path for path in deployed() if DEPLOY in path.parents
    }


# Printing and writing


ONE_FILE = {
    "cron": "crontab",
    "github": ".github/workflows/pollconsumer.yml",
    "cloudrun": "cloudrun.yaml",
    "containerapps": "containerapp.yaml",
    "heroku": "heroku.sh",
    "render": "render.yaml",
    "railway": ".railway/pollconsumer.ts",
    "gitlab": ".gitlab/pollconsumer.gitlab-ci.yml",
    "launchd": "local.pollconsumer.plist",
}


@pytest.mark.parametrize("platform", ONE_FILE)
def test_a_platform_with_one_file_prints_exactly_that_file(run: Any, place: Path, platform: str) -> None:
    store = [] if platform in LOCAL else ["--store", URL]
    code, out, _ = run(*store, "init", platform)
    run(*store, "init", platform, "--write", "out")
    assert (code, out) == (0, (place / "out" / ONE_FILE[platform]).read_text())


@pytest.mark.parametrize("platform", sorted({*PLATFORMS} - {*ONE_FILE}))
def test_several_files_are_printed_each_below_a_comment_with_its_name(run: Any, place: Path, platform: str) -> None:
    _, out, err = run("--store", URL, "init", platform)
    before = {path for path in place.rglob("*") if path.is_file()}
    assert (err, run("--store", URL, "init", platform, "--write", ".", "--force")[0]) == ("", 0)
    rest = out
    for path in (path for path in place.rglob("*") if path.is_file() and path not in before):
        mark = "//" if path.suffix in (".job", ".json") else "#"
        separator = "---\n" if path.suffix == ".yaml" else ""
        whole = f"{mark} {path.relative_to(place)}\n{separator}{path.read_text()}"
        assert whole in rest
        rest = rest.replace(whole, "")
    assert rest == ""


@pytest.mark.parametrize("platform", PLATFORMS)
def test_equal_files_are_left_alone(run: Any, place: Path, platform: str) -> None:
    def written() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in (place / "out").rglob("*") if path.is_file()}

    assert run("--store", URL, "init", platform, "--write", "out")[0] == 0
    before = written()
    code, out, _ = run("--store", URL, "init", platform, "--write", "out")
    assert code == 0
    assert [line.partition(":")[0] for line in out.splitlines()] == ["unchanged"] * len(before)
    assert written() == before


def test_a_file_that_differs_is_kept_and_nothing_else_is_written(run: Any, place: Path) -> None:
    out = place / "out"
    out.mkdir()
    (out / "pollconsumer.timer").write_text("mine")
    code, printed, err = run("init", "systemd", "--write", "out")
    assert (code, printed) == (73, "")
    assert (
        err == "pollconsumer: error: file differs: out/pollconsumer.timer; --force replaces it, or name another DIR\n"
    )
    assert [path.read_text() for path in out.iterdir()] == ["mine"]
    assert run("init", "systemd", "--write", "out", "--force")[0] == 0
    assert "OnCalendar" in (out / "pollconsumer.timer").read_text()


@pytest.mark.parametrize("directory", ["config.toml", "config.toml/below", "/proc/below"])
def test_a_directory_that_cannot_be_written_is_73(run: Any, directory: str) -> None:
    code, _, err = run("init", "docker", "--write", directory)
    assert (code, err.count("\n")) == (73, 1)


def test_files_with_a_password_are_for_their_owner_and_scripts_can_be_run(run: Any, place: Path) -> None:
    run("--store", URL, "init", "docker", "--write", "out")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (place / "out").iterdir()}
    assert modes["pollconsumer.env"] == 0o600
    assert modes["launch.sh"] == 0o755
    assert modes["Dockerfile"] == 0o644


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["init", "corn"], 2, "error: PLATFORM: 'corn'; did you mean cron?"),
        (["init"], 2, "missing argument: PLATFORM"),
        (["init", "cron", "--force"], 2, "--force"),
        (["init", "cron", "--image", "x"], 2, "--image: x; only kubernetes, keda, docker, cloudrun, "),
        (["init", "render", "--image", "x"], 2, "--image: x; only kubernetes, "),
        (["init", "cron", "--schedule", "61 * * * *"], 2, "minute must be 0-59"),
        (["--config", "missing.toml", "init", "cron"], 78, "not found"),
        (["--store", "http://h", "init", "cron"], 78, "store"),
        (["init", "azure", "--schedule", "0 0 1 * 1"], 78, "schedule: 0 0 1 * 1; Azure"),
        (["init", "kubernetes"], 78, "store: embedded; "),
        (["init", "keda"], 78, "store: embedded; "),
        (["--store", "unix:///run/s", "init", "keda"], 78, "store: unix:///run/s; "),
        (["init", "cloudrun"], 78, "store: embedded; "),
        (["--store", "unix:///run/s", "init", "ecs"], 78, "store: unix:///run/s; "),
        (["init", "containerapps"], 78, "store: embedded; "),
        (["--store", URL, "init", "ecs", "--schedule", "0 0 1 * 1"], 78, "schedule: 0 0 1 * 1; EventBridge"),
        (["init", "launchd", "--schedule", "*/2 */1 * * 1"], 78, "launchd would need 720 entries"),
    ],
)
def test_what_cannot_be_launched_is_one_line(run: Any, arguments: list[str], code: int, said: str) -> None:
    found, out, err = run(*arguments)
    errors = [line for line in err.splitlines() if line.startswith("pollconsumer: error: ")]
    assert (found, out, len(errors)) == (code, "", 1)
    assert said in errors[0]


@pytest.mark.parametrize("platform", ["docker", "kubernetes", "ecs"])
def test_a_file_that_needs_its_environment_is_launched(
    run: Any, place: Path, monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    (place / "config.toml").write_text('durability = "strict"\n[strict]\nreplicas = 1\n')
    (place / "config.toml").chmod(0o666)
    monkeypatch.setenv("POLLCONSUMER_STORE", URL)
    code, _, err = run("init", platform)
    assert (code, err.count("\n")) == (78, 1)
    assert "writable by others" in err
    monkeypatch.setenv("POLLCONSUMER_TRUST_WRITABLE", "true")
    code, out, err = run("init", platform)
    assert (code, "rror" in err, bool(out)) == (0, False, True)


# Passwords


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_password_is_in_a_secret_or_an_environment_file_only(run: Any, place: Path, platform: str) -> None:
    assert run("--store", URL, "init", platform, "--write", "out")[0] == 0
    holding = {path for path in (place / "out").rglob("*") if path.is_file() and PASSWORD in path.read_text()}
    assert {path.name for path in holding} <= {"secret.yaml", "pollconsumer.env", "appsettings.json"}
    assert all(path.stat().st_mode & 0o777 == PRIVATE for path in holding)
    assert bool(holding) == (platform not in BY_REFERENCE)


def test_a_crontab_with_a_password_is_printed_without_it_and_reads_it_from_a_file(run: Any, place: Path) -> None:
    _, out, err = run("--store", URL, "init", "cron")
    assert PASSWORD not in out + err
    assert f"set -a; . {place}/pollconsumer.env; exec " in out
    assert err == "pollconsumer: pollconsumer.env is not printed, as it may hold a password: --write DIR writes it\n"


@pytest.mark.parametrize("platform", [platform for platform in PLATFORMS if platform not in LOCAL])
def test_a_password_in_the_configuration_file_is_warned_about_where_that_file_travels(
    run: Any, place: Path, platform: str
) -> None:
    (place / "config.toml").write_text(f'store = "{URL}"\n[consumer]\nqueues = ["default"]\n')
    code, out, err = run("init", platform)
    assert (code, err.count("\n")) == (0, 1)
    assert "holds a password" in err
    assert PASSWORD not in err
    sections = re.split(r"^(?=(?:#|//) [\w./-]+$)", out, flags=re.MULTILINE)
    assert all(
        re.match(r"(#|//) (secret.yaml|pollconsumer.env|appsettings.json)\n", part)
        for part in sections
        if PASSWORD in part
    )


@pytest.mark.parametrize(
    ("platform", "warned"),
    [("cron", True), ("systemd", True), ("kubernetes", True), ("cloudrun", False), ("github", False)],
)
def test_a_rare_schedule_is_warned_about_where_a_longer_launch_costs_nothing(
    run: Any, place: Path, platform: str, warned: bool
) -> None:
    (place / "config.toml").write_text('store = "redis://store.example/0"\n[consumer]\nqueues = ["default"]\n')
    code, _, said = run("init", platform, "--schedule", "*/10 * * * *")
    assert (code, "unserved: 90% of each 10m: a launch ends after 1m, " in said) == (0, warned)


def test_an_environment_file_is_read_alike_by_the_shell_whatever_is_in_it(place: Path) -> None:
    url = "redis://:a%20b$HOME`id`\"'\\@h/0"
    files = PLATFORMS["cron"](installed(environment={"POLLCONSUMER_STORE": url, "POLLCONSUMER_NAMESPACE": "a b"}))
    (place / "env").write_text(text_of(files, ".env"))
    script = f"set -a; . ./env; exec {sys.executable} -c \"import os; print(os.environ['POLLCONSUMER_STORE'])\""
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True, cwd=place)
    assert done.stdout == url.replace("'", "%27") + "\n"


def test_what_the_environment_and_flags_set_is_set_for_launches_too(
    run: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLLCONSUMER_CONSUMER__IDLE_TIME", "1s")
    monkeypatch.setenv("POLLCONSUMER_PORT", "tcp://10.0.0.1:80")  # a service link
    monkeypatch.setenv("POLLCONSUMER_CONFIG", "config.toml")
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "website.settings")
    run("--namespace", "shop", "init", "systemd", "--write", "out")
    assert (place / "out" / "pollconsumer.env").read_text().splitlines()[1:] == [
        "DJANGO_SETTINGS_MODULE='website.settings'",
        "POLLCONSUMER_CONSUMER__IDLE_TIME='1s'",
        "POLLCONSUMER_NAMESPACE='shop'",
    ]
    assert f"EnvironmentFile={place}/out/pollconsumer.env\n" in (place / "out" / "shop.service").read_text()


# Each syntax


def argv_of(line: str, place: Path, **environment: str) -> list[str]:
    """The words that a program gets that a shell's ``line`` runs: one that notes them."""
    done = subprocess.run(
        ["/bin/sh", "-c", line], capture_output=True, text=True, check=True, cwd=place, env=os.environ | environment
    )
    words: list[str] = json.loads(done.stdout)
    return words


@pytest.fixture
def odd(place: Path) -> Installation:
    """Program and configuration in a directory with an odd name; the program prints its words."""
    directory = place / ODD
    directory.mkdir()
    program = directory / "pollconsumer"
    program.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv))\n")
    program.chmod(0o755)
    settings = Settings(directory=directory, config=directory / "config.toml", store=URL)
    return installed(settings, program=(str(program),))


def cron_reads(command: str) -> str:
    """As Debian's cron does: a percent sign ends it, one after a backslash is one."""
    return re.sub(r"(?<!\\)%.*", "", command).replace("\\%", "%")


def busybox_reads(command: str) -> str:
    return command


@pytest.mark.parametrize("reads", [cron_reads, busybox_reads])
def test_a_crontab_line_runs_paths_with_spaces_quotes_and_percent_signs(
    odd: Installation, place: Path, reads: Callable[[str], str]
) -> None:
    text = without_comments(text_of(PLATFORMS["cron"](odd), "crontab"))
    launch, alarm = [line.split(maxsplit=5)[5] for line in text.splitlines() if re.match(r"[*\d]", line)]
    assert argv_of(reads(launch), place) == [*odd.run()]
    assert argv_of(reads(alarm), place) == [*odd.doctor()]
    assert text_of(PLATFORMS["cron"](odd), "crontab").endswith("\n")


def test_a_units_words_are_quoted_for_systemd(odd: Installation) -> None:
    text = text_of(PLATFORMS["systemd"](odd), "pollconsumer.service")
    written = odd.program[0].replace("%", "%%").replace("$", "$$")
    assert f'ExecStart=/usr/bin/env "{written}" run --config "' in text
    assert f"ProtectHome={'read-only' if odd.program[0].startswith(('/home', '/root')) else 'yes'}\n" in text


def test_a_containers_launch_runs_with_its_odd_paths(odd: Installation, place: Path) -> None:
    shutil.copy(odd.program[0], place / "docker")
    words = argv_of(text_of(PLATFORMS["docker"](odd), "launch.sh"), place, PATH=f"{place}:{os.environ['PATH']}")
    assert words[1:3] == ["run", "--rm"]
    assert words[words.index("--env-file") + 1] == str(odd.environment_file)
    launch, alarm = text_of(PLATFORMS["docker"](odd), "crontab").splitlines()[-2:]
    words = ["exec", "/bin/sh", str(odd.settings.directory / "launch.sh")]
    assert shlex.split(cron_reads(launch))[5:] == words
    assert shlex.split(cron_reads(alarm))[5:] == [*words, "doctor", "--quiet"]


@pytest.mark.parametrize("namespace", ["Shop.EU_1", "-", "a" * 64, "9lives", "..x.."])
def test_odd_names_make_valid_names_of_resources_and_exact_names_of_keys(namespace: str) -> None:
    queue = "Re.ports_-1"
    settings = Settings(store=URL, namespace=namespace, config=Path("/c/config.toml"), directory=Path("/c"))
    found = installed(settings, queues=(queue,))
    assert re.fullmatch(r"[a-z]([a-z0-9-]{0,50}[a-z0-9])?", found.name)
    keys = re.findall(r"listName: (.*)", text_of(PLATFORMS["keda"](found), "scaledjob.yaml"))
    assert [json.loads(key) for key in keys] == [f"{{{namespace}:{queue}}}:r", f"{{{namespace}:{queue}}}:z"]


def test_a_control_character_in_a_path_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="control character"):
        installed(program=("/opt/a\nb/pollconsumer",))


COMMANDS = {
    "cron": {"run", "move", "doctor"},
    "systemd": {"run", "store", "doctor"},
    "kubernetes": {"run"},
    "keda": {"run"},
    "azure": {"run"},
    "docker": {"run"},
    "github": {"run"},
    "cloudrun": {"run"},
    "ecs": {"run"},
    "containerapps": {"run"},
    "heroku": {"run"},
    "render": {"run"},
    "railway": {"run"},
    "gitlab": {"run"},
    "launchd": {"run"},
}
LISTS = re.compile(r"^\s*(?:command: |CMD )(\[.*])$", re.MULTILINE)
LINES = re.compile(r"(?:\bexec |^ExecSt\w+=(?!\+)|^ +(?:start: |- )\")([^\"\n]*\bpollconsumer [^\"\n]*)", re.MULTILINE)


def commands(platform: str) -> Iterator[list[str]]:
    """What the files have pollconsumer do, comments included."""
    for file in PLATFORMS[platform](installation(platform)):
        found = [json.loads(words) for words in LISTS.findall(file.text)]
        found += [shlex.split(line) for line in LINES.findall(file.text) if "docker" not in line]
        if file.name.endswith(".plist"):
            found.append(plistlib.loads(file.text.encode())["ProgramArguments"])
        for words in found:
            yield words[next(at for at, word in enumerate(words) if word in ("run", "move", "store", "doctor")) :]


@pytest.mark.parametrize("platform", PLATFORMS)
def test_every_command_in_the_files_is_one_that_the_command_line_takes(platform: str) -> None:
    found = [*commands(platform)]
    assert {words[0] for words in found} == COMMANDS[platform]
    for name, *arguments in found:
        with click.Context(group) as root:
            root.params = {"config": None, "store": None, "namespace": None, "verbosity": 0, "quiet": False}
            command = group.get_command(root, name)
            assert command is not None
            if name != "store":
                command.make_context(name, arguments, parent=root)


# What the platforms ask for


def test_times_follow_from_the_configuration() -> None:
    backup = CommandSettings(command=("backup",), timeout=600.0)
    settings = changed(installed().settings, commands={"backup": backup}, consumer=ConsumerSettings(timeout=840.0))
    found = installed(settings, schedule="*/15 * * * *")
    assert "TimeoutStopSec=615\n" in text_of(PLATFORMS["systemd"](found), "pollconsumer.service")
    assert "TimeoutStartSec=1510\n" in text_of(PLATFORMS["systemd"](found), "pollconsumer.service")
    assert "OnCalendar=*-*-* *:0/15:00\n" in text_of(PLATFORMS["systemd"](found), "pollconsumer.timer")
    cronjob = text_of(PLATFORMS["kubernetes"](found), "cronjob.yaml")
    assert re.search(r"activeDeadlineSeconds: 2350\b", cronjob)
    assert re.search(r"terminationGracePeriodSeconds: 615\b", cronjob)
    assert "'*/15 * * * *'" in text_of(PLATFORMS["cron"](found), "crontab")  # told, since the configuration has none
    job = json.loads(text_of(PLATFORMS["azure"](found), "settings.job"))
    assert job == {"schedule": "0 */15 * * * *", "stopping_wait_time": 1455, "is_in_place": False}


BOUNDS = {
    "systemd": r"TimeoutStartSec=(\d+)",
    "kubernetes": r"activeDeadlineSeconds: (\d+)",
    "keda": r"activeDeadlineSeconds: (\d+)",
    "cloudrun": r"timeoutSeconds: (\d+)",
    "containerapps": r"replicaTimeout: (\d+)",
    "azure": r'"stopping_wait_time": (\d+)',
    "github": r"timeout-minutes: (\d+)",
    "gitlab": r"timeout: (\d+) minutes",
}
"""What bounds a whole launch in the files of each platform."""


@pytest.mark.parametrize("platform", BOUNDS)
@pytest.mark.parametrize(
    ("limit", "timeouts", "greatest"), [(300.0, (), 300), (300.0, (2000.0, 40.0), 2000), (3000.0, (40.0,), 3000)]
)
def test_no_platform_ends_a_launch_within_the_limit_of_what_it_handles(
    platform: str, limit: float, timeouts: tuple[float, ...], greatest: int
) -> None:
    settings = changed(installed().settings, consumer=ConsumerSettings(timeout=840.0, handler_limit=limit))
    found = installed(settings, timeouts=timeouts, queues=("default",), environment={STORE: URL})
    texts = "\n".join(file.text for file in PLATFORMS[platform](found) if "doctor" not in file.name)
    [bound] = map(int, re.findall(BOUNDS[platform], texts))
    windows = 1 if platform in ("systemd", "azure", "github", "gitlab") else 2  # a baton may be held for two
    assert bound * (60 if platform in ("github", "gitlab") else 1) > windows * 840 + greatest + 10


@pytest.mark.parametrize(
    ("limit", "timeouts", "grace"), [(3000.0, (), 45), (300.0, (20.0,), 45), (300.0, (90.0,), 105)]
)
def test_a_grace_period_follows_declared_timeouts_alone(limit: float, timeouts: tuple[float, ...], grace: int) -> None:
    settings = changed(installed().settings, consumer=ConsumerSettings(handler_limit=limit))
    assert installed(settings, timeouts=timeouts).stop_grace == grace


def test_init_reckons_with_the_timeouts_that_handlers_declare(site: Site) -> None:
    (site.directory / "slowly.py").write_text(
        "from pollconsumer import PollConsumer\napp = PollConsumer()\n"
        '@app.handler("slowly", timeout="20m")\ndef slowly() -> None: ...\n'
    )
    done = site.command("init", "systemd", POLLCONSUMER_HANDLERS="slowly")
    assert "TimeoutStopSec=1215\n" in done.stdout
    done = site.command("init", "systemd", POLLCONSUMER_HANDLERS="absent")
    assert (done.returncode, "TimeoutStopSec=45\n" in done.stdout) == (0, True)
    assert "the files are made without the timeouts of Python handlers" in done.stderr


def test_check_tells_the_latest_end_of_a_launch(site: Site) -> None:
    limits = {"POLLCONSUMER_CONSUMER__HANDLER_LIMIT": "20m", "POLLCONSUMER_CONSUMER__GRACE": "10s"}
    window = json.loads(site.command("check", "--json", **limits).stdout)["consumer"]
    beyond = datetime.fromisoformat(window["hard_end"]) - datetime.fromisoformat(window["stop_before"])
    assert beyond.total_seconds() == 1210


@pytest.mark.parametrize("role", ["run", "move"])
def test_each_line_of_a_crontab_tells_its_launches_the_schedule_unless_their_settings_do(role: str) -> None:
    """Without it, they would last beyond a tick that their launcher then drops."""

    def line(schedule: str, settings: Settings) -> str:
        text = text_of(PLATFORMS["cron"](installed(settings, schedule=schedule)), "crontab")
        return next(line for line in text.splitlines() if f"pollconsumer {role} " in line)

    unset = installed().settings
    every_minute = "* * * * *"
    known = changed(unset, consumer=ConsumerSettings(schedule=every_minute), mover=MoverSettings(schedule=every_minute))
    assert line(every_minute, unset).endswith("--schedule '* * * * *'")
    assert "--schedule" not in line(every_minute, known)
    assert line("*/5 * * * *", known).endswith("--schedule '*/5 * * * *'")


@pytest.mark.parametrize("platform", ["cron", "docker"])
def test_a_crontab_has_an_hourly_alarm_that_says_nothing_while_all_is_well(platform: str) -> None:
    settings = Settings(directory=Path("/c"), config=Path("/c/config.toml"))
    lines = without_comments(text_of(PLATFORMS[platform](installed(settings)), "crontab")).splitlines()
    launch, alarm = (line for line in lines if re.match(r"[*\d]", line))
    assert launch.startswith("* * * * * exec ")
    assert re.match(r"\d+ \* \* \* \* exec .* doctor --quiet\b", alarm)


def test_an_embedded_store_is_a_unit_of_its_own_which_no_launch_ends() -> None:
    files = PLATFORMS["systemd"](installation("systemd"))
    assert "RemainAfterExit=yes" in text_of(files, "-store.service")
    for verb in ("start", "stop"):  # the directory of a unit is /
        assert f" store {verb} --config " in text_of(files, "-store.service")
    assert "Requires=pollconsumer-store.service\n" in text_of(files, "pollconsumer.service")
    assert "KillMode=process\n" in text_of(files, "pollconsumer.service")
    assert "KillMode=mixed\n" in text_of(PLATFORMS["systemd"](installed()), "pollconsumer.service")


def test_a_unit_starts_on_a_machine_that_lacks_the_directories_that_launches_write(place: Path) -> None:
    """systemd refuses a unit, with 226/NAMESPACE, that lets it write to a directory that is not there."""
    found = installation("systemd")
    settings = changed(found.settings, spool=f"{place}/spool")
    settings.dashboard.static = f"{place}/my pages"
    files = PLATFORMS["systemd"](replace(found, settings=settings))
    services = [file.text for file in files if file.name.endswith(".service")]
    assert len(services) == 3
    for text in services:
        assert re.findall(r"^(?:ReadWrite|ReadOnly|Bind)Paths=(.*)", text, re.MULTILINE) == [
            "-/var/lib/pollconsumer/.local/share/pollconsumer",
            f"-{place}/spool",
            f'"-{place}/my pages"',
        ]


def test_a_store_outside_of_the_users_home_is_the_same_for_launches(run: Any, place: Path) -> None:
    assert run("init", "cron")[1].count(f" exec env XDG_DATA_HOME={place}/data ") == 3
    assert run("init", "systemd")[1].count(f"\nEnvironment=XDG_DATA_HOME={place}/data\n") == 3
    assert "XDG_DATA_HOME" not in run("--store", URL, "init", "cron")[1]


def test_a_crontab_sets_no_variable_that_busybox_would_ignore(odd: Installation) -> None:
    text = text_of(PLATFORMS["cron"](replace(odd, data_home=Path("/elsewhere"))), "crontab")
    assert set(re.findall(r"^(\w+)=", text, re.MULTILINE)) == {"SHELL", "PATH", "MAILTO"}


def test_some_platforms_launch_every_five_minutes_at_most() -> None:
    assert {calendar.every_five_minutes(often) for often in ("* * * * *", "1,2 * * * *")} == {"*/5 * * * *"}
    assert calendar.every_five_minutes("*/15 * * * *") == "*/15 * * * *"


@pytest.mark.parametrize(
    ("schedule", "calendars"),
    [
        ("* * * * *", ["*-*-* *:*:00"]),
        ("*/5 * * * *", ["*-*-* *:0/5:00"]),
        ("5-59/10 1-3 * JAN *", ["*-1-* 1,2,3:5,15,25,35,45,55:00"]),
        ("0 9 * * MON-FRI", ["Mon,Tue,Wed,Thu,Fri *-*-* 9:0:00"]),
        ("0 0 13 * 5-7", ["*-*-13 0:0:00", "Sun,Fri,Sat *-*-* 0:0:00"]),
        ("0 0 */10 * *", ["*-*-1/10 0:0:00"]),
    ],
)
def test_a_timer_elapses_when_cron_launches(schedule: str, calendars: list[str]) -> None:
    assert calendar.for_systemd(schedule) == calendars
    if (analyze := shutil.which("systemd-analyze")) is None:
        return
    elapsed = set[str]()
    for each in calendars:
        command = [analyze, "calendar", "--iterations=20", "--base-time=2026-01-01 00:00:00 UTC", each]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env={"TZ": "UTC", "LC_ALL": "C"})
        elapsed |= {*re.findall(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC", done.stdout)}
    expected = islice(Cron(schedule).instants(1767225600000, UTC), 10)
    assert [f"{datetime_of(instant):%Y-%m-%d %H:%M:%S}" for instant in expected] == sorted(
        elapsed - {"2026-01-01 00:00:00"}
    )[:10]


def test_sunday_is_0_where_7_is_unknown_and_what_a_dialect_lacks_is_refused() -> None:
    assert calendar.with_sunday_0("0 0 * * 5-7") == "0 0 * * 0,5,6"
    with pytest.raises(ConfigurationError):
        calendar.for_systemd("0 0 L * *")


# Validators, where they are installed


def with_program(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed")
    return found


def test_systemd_accepts_the_units_and_finds_them_hardened(odd: Installation, place: Path) -> None:
    analyze = with_program("systemd-analyze")
    files = PLATFORMS["systemd"](replace(odd, data=Path("/var/lib/x y"), user="daemon"))
    for file in files:
        (place / file.name).write_text(file.text)
    units = [str(place / file.name) for file in files]
    done = subprocess.run([analyze, "verify", *units], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    command = [analyze, "security", "--offline=yes", "--no-pager", "--threshold=15"]
    for unit in units:
        if unit.endswith(".service"):
            assert subprocess.run([*command, unit], capture_output=True, check=False).returncode == 0, unit


def test_cron_accepts_the_crontab(odd: Installation, place: Path) -> None:
    program = with_program("crontab")
    (place / "crontab").write_text(text_of(PLATFORMS["cron"](odd), "crontab"))
    done = subprocess.run([program, "-n", "crontab"], capture_output=True, text=True, check=False, cwd=place)
    if "invalid option" in done.stderr:
        pytest.skip("this crontab has no dry run")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("platform", ["azure", "docker", "heroku"])
def test_shellcheck_finds_nothing(odd: Installation, place: Path, platform: str) -> None:
    program = with_program("shellcheck")
    for at, file in enumerate(file for file in PLATFORMS[platform](odd) if file.name.endswith(".sh")):
        (place / f"{at}.sh").write_text(file.text)
        done = subprocess.run([program, f"{at}.sh"], capture_output=True, text=True, check=False, cwd=place)
        assert (done.returncode, done.stdout) == (0, "")


# What KEDA reads

LENGTHS = """
local kind = redis.call('type', KEYS[1]).ok
if kind == 'zset' then return redis.call('zcard', KEYS[1]) end
if kind == 'list' or kind == 'none' then return redis.call('llen', KEYS[1]) end
return redis.error_reply('ERR unsupported key type')
"""
"""As KEDA's redis scaler does it."""


def test_keda_reads_the_ready_messages_of_all_priorities_with_the_rights_that_the_page_lists(valkey: Server) -> None:
    settings = Settings(store="redis://h", namespace=NAMESPACE, directory=Path("/c"), config=Path("/c/config.toml"))
    text = text_of(PLATFORMS["keda"](installed(settings, queues=(QUEUE,))), "scaledjob.yaml")
    keys = [json.loads(key) for key in re.findall(r"listName: (.*)", text)]
    page = (DEPLOY.parent / "docs" / "reference" / "keda.md").read_text()
    rule = re.search(r"^ACL SETUSER keda (.*?)\n```", page, re.MULTILINE | re.DOTALL)
    assert rule is not None
    wire = valkey.wire()
    words = rule[1].replace("\\\n", " ").replace("pollconsumer", NAMESPACE).replace(">PASSWORD", ">x").split()
    wire.command("ACL", "SETUSER", "keda", "reset", *words)
    reader = Redis(unix_socket_path=valkey.url.removeprefix("unix://"), username="keda", password="x")
    looking = Inspector(wire, NAMESPACE)

    def figure() -> int:
        return sum(int(reader.eval(LENGTHS, 1, key)) for key in keys)

    def ready() -> int:
        return sum(queue.ready for queue in looking.overview().queues)

    try:
        assert figure() == 0
        store = RedisStore(wire, NAMESPACE)
        store.enqueue([message(f"m{n}", priority=n % 3 - 1) for n in range(9)])
        store.enqueue([message("later", delay=3_600_000)])
        assert figure() == ready() == 9
        MessageActions(wire, NAMESPACE).cancel(QUEUE, "m1")
        assert (figure(), ready()) == (9, 8)  # until the next launch comes to its id
        assert len(Launch(store).reserve(9)) == 8
        assert figure() == ready() == 0
    finally:
        reader.close()
        wire.command("ACL", "DELUSER", "keda")


def test_a_launch_imports_nothing_of_it() -> None:
    script = (
        "import sys, pollconsumer.interface.cli.launch_commands\n"
        "print([m for m in sys.modules if 'platform_files' in m])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(("platform", "name"), [("kubernetes", "cronjob.yaml"), ("keda", "scaledjob.yaml")])
def test_a_pod_is_not_root_and_leaves_it_to_the_cluster_who_else_it_is(platform: str, name: str) -> None:
    """OpenShift admits no user but one of the project's own range; the image's user holds elsewhere."""
    settings = Settings(store="redis://h", directory=Path("/c"), config=Path("/c/config.toml"))
    pod = text_of(PLATFORMS[platform](installed(settings, queues=(QUEUE,))), name)
    assert "runAsNonRoot: true" in pod
    assert not re.findall(r"runAsUser|runAsGroup|fsGroup|supplementalGroups", pod)
    image = text_of(PLATFORMS["docker"](installed(settings)), "Dockerfile")
    assert re.search(r"^USER [1-9][0-9]*:", image, re.MULTILINE), "by number, so that runAsNonRoot can be verified"


def test_keda_asks_the_nodes_of_a_cluster() -> None:
    settings = Settings(
        store="redis+cluster://:canary@h1,h2:7000?ssl=true", directory=Path("/c"), config=Path("/c/config.toml")
    )
    files = PLATFORMS["keda"](installed(settings, queues=(QUEUE,)))
    trigger = text_of(files, "scaledjob.yaml")
    for line in ("- type: redis-cluster", 'addresses: "h1:6379,h2:7000"', 'enableTLS: "true"', "parameter: password"):
        assert line in trigger
    assert "canary" not in trigger


def test_keda_asks_the_sentinels_of_the_store_with_the_passwords_of_both() -> None:
    url = "redis+sentinel://:canary@h1,[::1]:26380/mymaster/2?sentinel_password=another"
    settings = Settings(store=url, directory=Path("/c"), config=Path("/c/config.toml"))
    files = PLATFORMS["keda"](installed(settings, queues=(QUEUE,)))
    trigger = text_of(files, "scaledjob.yaml")
    for line in (
        "- type: redis-sentinel",
        'addresses: "h1:26379,[::1]:26380"',
        'sentinelMaster: "mymaster"',
        'databaseIndex: "2"',
        "parameter: sentinelPassword",
    ):
        assert line in trigger
    assert "canary" not in trigger
    assert 'redis-sentinelPassword: "another"' in text_of(files, "secret.yaml")


def test_a_file_that_may_hold_a_password_is_not_shown_at_a_terminal_but_is_printed_into_a_pipe(site: Site) -> None:
    variables = {"POLLCONSUMER_STORE": "redis://:secret@db:6379/0"}
    words = [sys.executable, "-m", "pollconsumer", "init", "docker"]
    place: dict[str, Any] = {"cwd": site.directory, "env": site.environment | variables}
    with Screen() as screen:
        subprocess.run(words, **place, stdout=screen.side, check=True, timeout=60)
        shown = screen.read_rest()
    assert "FROM python" in shown
    assert "secret" not in shown
    assert "secret" in site.command("init", "docker", **variables).stdout


def test_a_client_of_the_users_is_found_by_a_launch_anywhere_but_not_by_keda() -> None:
    settings = Settings(client="bring:client", directory=Path("/c"), config=Path("/c/config.toml"))
    for platform in ("kubernetes", "docker", "azure"):
        texts = [file.text for file in PLATFORMS[platform](installed(settings))]
        assert not [text for text in texts if re.search("STORE.{1,4}embedded", text)]
    with pytest.raises(ConfigurationError, match="client: bring:client; KEDA reads the store itself: name its URL"):
        PLATFORMS["keda"](installed(settings, queues=(QUEUE,)))


def test_a_queue_apart_has_a_line_of_its_own_and_another_line_has_all_the_others(run: Any, place: Path) -> None:
    (place / "config.toml").write_text('[consumer]\nqueues = ["default", "mail", "slow"]\nschedule = "* * * * *"\n')
    _, shown, _ = run("init", "cron", "--queue", "slow")
    launches = [line.rpartition("config.toml")[2] for line in shown.splitlines() if " run --config" in line]
    assert launches == [" --queue default --queue mail", " --queue slow"]
    assert "init cron --install --queue slow    (adds 3 lines to your crontab;" in shown
    assert "init cron --install    (adds 2 lines to your crontab;" in run("init", "cron")[1]
    hourly = run("init", "cron", "--schedule", "0 * * * *", "--queue", "slow", "--queue", "mail")[1]
    assert "init cron --install --schedule '0 * * * *' --queue slow --queue mail    (adds 3" in hourly
    code, _, said = run("init", "cron", "--queue", "slwo")
    assert (code, "--queue: slwo; did you mean slow?" in said) == (2, True)
    assert run("init", "systemd", "--queue", "slow")[0] == 2
