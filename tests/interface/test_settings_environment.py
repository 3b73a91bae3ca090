"""Settings from variables: every key of the configuration has one, those of tables by name included."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.interface.settings.load import load_settings
from pollconsumer.interface.settings.model import (
    READ_DURATION,
    TABLES,
    QueueSettings,
    Settings,
    as_values,
    declared_fields,
)
from pollconsumer.interface.settings.names import variable

if TYPE_CHECKING:
    from pathlib import Path

    from pollconsumer.interface.settings.model import DeclaredField

WRITTEN = {
    "namespace": ('"other"', "other"),
    "store": ('"redis://h"', "redis://h"),
    "client": ('"myapp.redis:client"', "myapp.redis:client"),
    "credentials": ('"myapp.azure:provider"', "myapp.azure:provider"),
    "handlers": ('["a", "b"]', "a,b"),
    "state": ('"none"', "none"),
    "data": ('"data"', "data"),
    "spool": ('"spool"', "spool"),
    "consumer.on_demand": ('"process"', "process"),
    "web.linger": ('"budget"', "budget"),
    "server": ('"/usr/bin/valkey-server"', "/usr/bin/valkey-server"),
    "doctor.url": ('"https://h/x"', "https://h/x"),
    "doctor.mail": ('"ops@example.org"', "ops@example.org"),
    "alarms.handlers": ('{ render = { slower_than = "10m" } }', '{"render": {"slower_than": "10m"}}'),
    "dashboard.url": ('"https://h/queue"', "https://h/queue"),
    "pings.url": ('"https://h/x"', "https://h/x"),
    "logs.target": ('"launch.log"', "launch.log"),
    "logs.keep": ('"16KiB"', "16KiB"),
    "dashboard.static": ('"/var/www/queue"', "/var/www/queue"),
    "dashboard.token": ('"a-token-of-sixteen"', "a-token-of-sixteen"),
    "web.token": ('"a-token-of-sixteen"', "a-token-of-sixteen"),
    "web.enqueue_token": ('"another-of-sixteen"', "another-of-sixteen"),
    "web.manage_token": ('"a-third-of-sixteen"', "a-third-of-sixteen"),
    "consumer.queues": ('["mail"]', "mail"),
    "consumer.schedule": ('"*/5 * * * *"', "*/5 * * * *"),
    "consumer.tolerance_factor": ("2.5", "2.5"),
    "consumer.overrun_target": ("0.05", "0.05"),
    "consumer.memory_limit": ('"256MB"', "256MB"),
    "mover.schedule": ('"*/5 * * * *"', "*/5 * * * *"),
    "queues.mail.quota": ('"5/1m"', "5/1m"),
    "queues.mail.keep_completed": ('"7d/100"', "7d/100"),
    "queues.mail.keep_dead": ('"90d"', "90d"),
    "queues.mail.rate": ('"60/1h"', "60/1h"),
    "recurrences.nightly.handler": ('"backup"', "backup"),
    "recurrences.nightly.cron": ('"30 2 * * *"', "30 2 * * *"),
    "recurrences.nightly.every": ('"90s"', "90s"),
    "recurrences.nightly.jitter": ('"5m"', "5m"),
    "recurrences.nightly.retry": ('"slow"', "slow"),
    "recurrences.nightly.concurrency_key": ('"disk"', "disk"),
    "recurrences.nightly.concurrency_limit": ("2", "2"),
    "recurrences.nightly.order_key": ('"disk"', "disk"),
    "recurrences.nightly.rate_key": ('"disk"', "disk"),
    "recurrences.nightly.rate": ('"60/1h"', "60/1h"),
    "recurrences.nightly.headers": ('{ team = "ops" }', '{"team": "ops"}'),
    "recurrences.nightly.headers.team": ('"ops"', "ops"),
    "recurrences.nightly.timezone": ('"Europe/Paris"', "Europe/Paris"),
    "recurrences.nightly.queue": ('"long"', "long"),
    "recurrences.nightly.payload": ('{ target = "db1", n = 3 }', '{"target": "db1", "n": 3}'),
    "recurrences.nightly.payload.target": ('"db1"', "db1"),
    "recurrences.nightly.payload.n": ("3", "3"),
    "recurrences.nightly.priority": ("-3", "-3"),
    "recurrences.nightly.ping": ('"https://h/a"', "https://h/a"),
    "commands.backup.command": ('["/bin/backup", "a,b"]', '["/bin/backup", "a,b"]'),
    "commands.backup.queue": ('"long"', "long"),
    "commands.backup.retry": ('{ first = "2s", factor = 3 }', '{"first": "2s", "factor": 3}'),
    "commands.backup.retry.most": ('"5m"', "5m"),
    "commands.backup.retry.factor": ("3", "3"),
    "commands.backup.fatal": ("[64, 65]", "64,65"),
    "commands.backup.rate": ('"60/1h"', "60/1h"),
    "commands.backup.rate_key": ('"customer"', "customer"),
    "commands.backup.environment": ('["A", "B"]', "A,B"),
    "commands.backup.directory": ('"sub"', "sub"),
}
"""Path → the same value as the file has it and as a variable has it, where the declared type does not tell one."""
ENTRIES = {"queues": "mail", "recurrences": "nightly", "commands": "backup"}


def spellings(setting: DeclaredField) -> tuple[str, str]:
    """Of a value of the declared type that is not the default."""
    if setting.reads == READ_DURATION:
        return '"7s"', "7s"
    if setting.words:
        word = next(each for each in setting.words if each != setting.default)
        return json.dumps(word), word
    if setting.kind == "bool":
        return (json.dumps(not setting.default),) * 2
    assert setting.kind == "int", f"{setting.key}: give an example in WRITTEN"
    assert setting.least is not None
    return (str(int(setting.least) + 1),) * 2


for name, section in {**declared_fields().sections, **declared_fields().tables}.items():
    for key, setting in section.items():
        path = ".".join(filter(None, (name, ENTRIES.get(name), key)))
        if path not in WRITTEN:
            WRITTEN[path] = spellings(setting)
NEEDED = {
    "recurrences": {"handler": ('"backup"', "backup"), "every": ('"1m"', "1m")},
    "commands": {"command": ('["true"]', '["true"]')},
    "queues": {},
}
"""What an entry of a table cannot do without."""
NEEDED_BY = {"concurrency_limit": "concurrency_key", "rate": "rate_key"}
"""Key of a recurrence → the one without which it says nothing."""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    current = tmp_path / "current"
    current.mkdir()
    monkeypatch.chdir(current)
    return current


def with_what_it_needs(path: str) -> dict[str, tuple[str, str]]:
    """``path`` and its value, and the other keys without which its entry is refused."""
    table, *rest = path.split(".")
    wanted = {path: WRITTEN[path]}
    if path in ("strict.replicas", "strict.aof", "credentials"):
        wanted = {"store": WRITTEN["store"], path: WRITTEN[path]}  # the embedded server has none
    if table in TABLES:
        needed = dict(NEEDED[table])
        if rest[1] == "cron":
            del needed["every"]
        if table == "recurrences" and (key := NEEDED_BY.get(rest[1])):
            needed[key] = WRITTEN[f"{table}.{rest[0]}.{key}"]
        wanted |= {f"{table}.{rest[0]}.{key}": value for key, value in needed.items() if key != rest[1]}
    return wanted


@pytest.mark.parametrize("path", WRITTEN)
def test_every_key_can_be_set_by_a_variable(path: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = with_what_it_needs(path)
    with monkeypatch.context() as environment:
        for each, (_, value) in wanted.items():
            environment.setenv(variable(each), value)
        found = load_settings()
    (place / "config.toml").write_text("".join(f"{each} = {value}\n" for each, (value, _) in wanted.items()))
    assert as_values(load_settings()) == as_values(found)
    assert as_values(found) != as_values(Settings())


def test_a_key_that_was_renamed_is_known_by_its_former_name(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "config.toml").write_text("[mover]\nbatch_size = 7\n")
    found = [load_settings().mover.page_size]
    monkeypatch.setenv("POLLCONSUMER_MOVER__BATCH_SIZE", "8")
    found.append(load_settings().mover.page_size)
    (place / "config.toml").write_text("[mover]\npage_size = 6\n")
    found.append(load_settings().mover.page_size)
    monkeypatch.setenv("POLLCONSUMER_MOVER__PAGE_SIZE", "9")
    found.append(load_settings().mover.page_size)
    assert found == [7, 8, 8, 9]


def test_a_variable_goes_before_the_file_key_by_key(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "config.toml").write_text(
        '[queues.default]\nquota = "1/1m"\nweight = 3\n[queues.other]\nweight = 4\n'
        '[recurrences.r]\nhandler = "h"\nevery = "1m"\npayload = { a = 1, b = 2 }\n'
    )
    monkeypatch.setenv("POLLCONSUMER_QUEUES__DEFAULT__QUOTA", "5/1m")
    monkeypatch.setenv("POLLCONSUMER_RECURRENCES__R__PAYLOAD__B", "[3]")
    found = load_settings()
    assert found.queues == {"default": QueueSettings(quota="5/1m", weight=3), "other": QueueSettings(weight=4)}
    assert found.recurrences["r"].payload == {"a": 1, "b": [3]}
    monkeypatch.setenv("POLLCONSUMER_RECURRENCES__R__PAYLOAD", '{"c": 4}')  # the whole of it
    assert load_settings().recurrences["r"].payload == {"b": [3], "c": 4}


@pytest.mark.parametrize(
    ("file", "name", "meant"),
    [
        ("", "DEFAULT", "default"),
        ("[queues.default]", "DEFAULT", "default"),
        ("[queues.Default]", "DEFAULT", "Default"),
        ("[queues.Default]", "default", "Default"),
        ("[queues.Default]\n[queues.default]", "default", "default"),
        ('[consumer]\nqueues = ["Default"]', "DEFAULT", "Default"),
        ("", "MY_QUEUE", "my_queue"),
        ("[queues.my-queue]", "MY-QUEUE", "my-queue"),  # no shell spells it, but a container's file may
    ],
)
def test_a_name_in_a_variable_is_that_of_the_file_whatever_its_case(
    file: str, name: str, meant: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "config.toml").write_text(file)
    monkeypatch.setenv(f"POLLCONSUMER_QUEUES__{name}__QUOTA", "5/1m")
    quotas = {queue: limits.quota for queue, limits in load_settings().queues.items() if limits.quota}
    assert quotas == {meant: "5/1m"}


def test_a_name_that_two_entries_of_the_file_could_have_is_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "config.toml").write_text("[queues.Mail]\n[queues.mail]\n")
    monkeypatch.setenv("POLLCONSUMER_QUEUES__MAIL__QUOTA", "5/1m")
    with pytest.raises(
        ConfigurationError, match=r"^ambiguous variable: POLLCONSUMER_QUEUES__MAIL__QUOTA; Mail and mail"
    ):
        load_settings()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("CONSUMER__CONCURRENCY", "four", "POLLCONSUMER_CONSUMER__CONCURRENCY: four; expected an integer"),
        ("CONSUMER__CONCURRENCY", "0", "POLLCONSUMER_CONSUMER__CONCURRENCY: 0; must be 1-256"),
        ("CONSUMER__TIMEOUT", "5 apples", "POLLCONSUMER_CONSUMER__TIMEOUT: 5 apples; units are"),
        ("CONSUMER__SCHEDULE", "61 * * * *", "POLLCONSUMER_CONSUMER__SCHEDULE: 61 * * * *; minute must be 0-59"),
        ("CONSUMER__QUEUES", "[1", "POLLCONSUMER_CONSUMER__QUEUES: [1; expected a list"),
        ("STORE", "http://h", "POLLCONSUMER_STORE: http://h; use embedded"),
        ("CONSUMER__CONCURENCY", "4", "did you mean POLLCONSUMER_CONSUMER__CONCURRENCY?"),
        ("STROE", "embedded", "unknown variable: POLLCONSUMER_STROE; did you mean POLLCONSUMER_STORE?"),
        ("DIRECTORY", "/", "POLLCONSUMER_DIRECTORY; did you mean POLLCONSUMER_COMMANDS__NAME__DIRECTORY?"),
        ("ON_DEMAND", "process", "POLLCONSUMER_ON_DEMAND; did you mean POLLCONSUMER_CONSUMER__ON_DEMAND?"),
        ("MOVER__NAMESPACE", "a", "POLLCONSUMER_MOVER__NAMESPACE; did you mean POLLCONSUMER_NAMESPACE?"),
        ("X", "1", "unknown variable: POLLCONSUMER_X; no setting has it"),
        ("QUEUES__DEFAULT__QUOTTA", "5/1m", "unknown variable: POLLCONSUMER_QUEUES__DEFAULT__QUOTTA; did you mean "
         "POLLCONSUMER_QUEUES__DEFAULT__QUOTA?"),
        ("QUEUE__DEFAULT__QUOTA", "5/1m", "did you mean POLLCONSUMER_QUEUES__DEFAULT__QUOTA?"),
        ("QUEUES__MY__QUEUE__QUOTA", "5/1m", "unknown variable: POLLCONSUMER_QUEUES__MY__QUEUE__QUOTA;"),
        ("QUEUES____QUOTA", "5/1m", "unknown variable: POLLCONSUMER_QUEUES____QUOTA;"),
        ("QUEUES__QUOTA", "5/1m", "unknown variable: POLLCONSUMER_QUEUES__QUOTA;"),
        ("QUEUES__DEFAULT__QUOTA__X", "5/1m", "unknown variable: POLLCONSUMER_QUEUES__DEFAULT__QUOTA__X;"),
        ("QUEUES__DEFAULT__QUOTA", "5", "POLLCONSUMER_QUEUES__DEFAULT__QUOTA: 5; write messages / period"),
        ("QUEUES__DEFAULT__MAX_IN_FLIGHT", "many", "POLLCONSUMER_QUEUES__DEFAULT__MAX_IN_FLIGHT: many; expected an"),
        ("QUEUES__DEFAULT__WEIGHT", "0", "POLLCONSUMER_QUEUES__DEFAULT__WEIGHT: 0; must be 1-1000"),
        ("QUEUES__A/B__QUOTA", "5/1m", "queues.a/b: its name; use 1 to 64"),
        ("COMMANDS__BACKUP__COMMAND", "backup -v", "_COMMANDS__BACKUP__COMMAND: backup -v; expected a list"),
        ("COMMANDS__BACKUP__COMMAND", "[" * 100_000, "expected a list"),
        ("COMMANDS__BACKUP__COMMAND", "[]", "POLLCONSUMER_COMMANDS__BACKUP__COMMAND: []; empty"),
        ("COMMANDS__BACKUP__FATAL", "64,x", "POLLCONSUMER_COMMANDS__BACKUP__FATAL: 64,x; expected a list"),
        ("RECURRENCES__NIGHTLY__ENABLED", "no", "POLLCONSUMER_RECURRENCES__NIGHTLY__ENABLED: no; expected true or"),
        ("RECURRENCES__NIGHTLY__PAYLOAD", "[1]", "POLLCONSUMER_RECURRENCES__NIGHTLY__PAYLOAD: [1]; expected a table"),
        ("CONSUMER__QUEUES", "[" * 100_000, "expected a list"),
    ],
)  # fmt: skip
def test_an_invalid_variable_is_named(name: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"POLLCONSUMER_{name}", value)
    with pytest.raises(ConfigurationError, match=r"^[^\n]*$") as caught:
        load_settings()
    assert message in str(caught.value)


def test_a_file_without_the_table_that_a_variable_is_in_is_refused_as_ever(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "config.toml").write_text("queues = 5\n")
    monkeypatch.setenv("POLLCONSUMER_QUEUES__DEFAULT__QUOTA", "5/1m")
    with pytest.raises(ConfigurationError, match=r"^config\.toml: queues: 5; expected a table"):
        load_settings()


def test_a_limit_that_is_no_number_is_refused_in_the_file(place: Path) -> None:
    (place / "config.toml").write_text('[queues.mail]\nmax_in_flight = "3"\n')
    with pytest.raises(ConfigurationError, match=r"^config\.toml: queues\.mail\.max_in_flight: 3; expected an integer"):
        load_settings()
