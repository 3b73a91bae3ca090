"""Settings: where they come from, and what is refused."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pollconsumer
from pollconsumer.core.errors import ConfigurationError, PermissionDenied, PollConsumerError, UsageError, shown
from pollconsumer.interface.settings.load import load_settings, with_flags
from pollconsumer.interface.settings.model import ConsumerSettings, MoverSettings, Settings, as_values, settings_of
from pollconsumer.interface.settings.names import VERSION
from pollconsumer.interface.settings.reading import check_given
from pollconsumer.interface.settings.values import check_cron, is_host, parse_memory

if TYPE_CHECKING:
    pass


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory, and no variables of ours."""
    for name in [name for name in os.environ if name.startswith("POLLCONSUMER_")]:
        monkeypatch.delenv(name)
    current = tmp_path / "current"
    current.mkdir()
    monkeypatch.chdir(current)
    return current


def defaults(place: Path) -> Settings:
    """The settings where there is no configuration."""
    return Settings(directory=place, nowhere=f"no config.toml in {place} or above it")


def refused(text: str, place: Path) -> ConfigurationError:
    (place / "config.toml").write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load_settings()
    assert caught.value.exit_code == 78
    assert "\n" not in str(caught.value)
    return caught.value


# Where settings come from


def test_without_any_source_there_are_the_defaults(place: Path) -> None:
    assert load_settings() == defaults(place)


def test_an_empty_file_leaves_the_defaults(place: Path) -> None:
    (place / "config.toml").touch()
    assert load_settings() == Settings(directory=place, config=place / "config.toml")


def test_flag_goes_before_environment_before_file_before_default(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "config.toml").write_text(
        'namespace = "file"\nstore = "redis://file"\n[consumer]\nidle_time = "3s"\ntimeout = "1m30s"\n'
    )
    monkeypatch.setenv("POLLCONSUMER_NAMESPACE", "environment")
    monkeypatch.setenv("POLLCONSUMER_STORE", "redis://environment")
    monkeypatch.setenv("POLLCONSUMER_CONSUMER__IDLE_TIME", "500ms")
    found = load_settings(store="redis://flag")
    assert (found.store, found.namespace) == ("redis://flag", "environment")
    assert found.consumer == ConsumerSettings(idle_time=0.5, timeout=90.0)
    assert found.mover == MoverSettings()


def test_named_file_goes_before_the_variable_before_the_one_in_the_current_directory(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("config", "variable", "flag"):
        (place / f"{name}.toml").write_text(f'namespace = "{name}"')
    assert load_settings().namespace == "config"
    monkeypatch.setenv("POLLCONSUMER_CONFIG", "variable.toml")
    assert load_settings().namespace == "variable"
    assert load_settings(Path("flag.toml")).namespace == "flag"
    elsewhere = tmp_path / "elsewhere.toml"
    elsewhere.touch()
    assert load_settings(elsewhere).directory == tmp_path


def test_an_empty_list_of_queues_is_unset(place: Path) -> None:
    (place / "config.toml").write_text("[consumer]\nqueues = []\n")
    assert load_settings().consumer == ConsumerSettings()


def test_an_empty_variable_is_unset(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("POLLCONSUMER_CONSUMER__CONCURRENCY", "")
    monkeypatch.setenv("POLLCONSUMER_CONFIG", "")
    with caplog.at_level("DEBUG", "pollconsumer"):
        assert load_settings() == defaults(place)
    assert "POLLCONSUMER_CONSUMER__CONCURRENCY is empty" in caplog.text


@pytest.mark.parametrize("written", ["mail,reports", "mail, reports", '["mail", "reports"]'])
def test_a_variable_holds_a_list(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLLCONSUMER_CONSUMER__QUEUES", written)
    assert load_settings().consumer.queues == ("mail", "reports")


def test_variables_hold_numbers_and_units(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"CONCURRENCY": "4", "TOLERANCE_FACTOR": "2.5", "MEMORY_LIMIT": "256MB", "GRACE": "7"}.items():
        monkeypatch.setenv(f"POLLCONSUMER_CONSUMER__{name}", value)
    expected = ConsumerSettings(concurrency=4, tolerance_factor=2.5, memory_limit=256_000_000, grace=7.0)
    assert load_settings().consumer == expected


def test_links_of_a_kubernetes_service_named_like_us_are_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PORT", "SERVICE_HOST", "SERVICE_PORT_HTTP", "PORT_80_TCP", "PORT_80_TCP_ADDR", "WEB_SERVICE_PORT"):
        monkeypatch.setenv(f"POLLCONSUMER_{name}", "tcp://10.0.0.1:80")
    assert load_settings().consumer == ConsumerSettings()


def test_the_version_is_that_of_the_package() -> None:
    assert version("pollconsumer") == pollconsumer.__version__ == VERSION


def test_a_printed_settings_object_does_not_show_the_store() -> None:
    assert "secret" not in repr(Settings(store="redis://:secret@h"))


# What is refused


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = ", "line 1, column 5, key x: Invalid value"),
        ('store = "redis://:secret@h', "line 1, column 27, key store"),
        ('namespace = "a"\nnamespace = "b"', "line 2, column 16, key namespace: Cannot overwrite a value"),
        ("[[[", "line 1, column 3"),
        ("timeout = " + "9" * 5000, "Exceeds the limit"),
        ("[consumer]\ntolerence_factor = 3", "unknown key: consumer.tolerence_factor; did you mean tolerance_factor?"),
        ('on_demand = "process"', "unknown key: on_demand; did you mean consumer.on_demand?"),
        ("quota = 5", "unknown key: quota; did you mean queues.NAME.quota?"),
        ('[consumer]\nnamespace = "a"', "unknown key: consumer.namespace; did you mean namespace, above the first ["),
        ("[mover]\ngrace = 5\ninstances = 2", "unknown key: mover.instances; did you mean consumer.instances?"),
        ('[recurrences.n]\nhandler = "a"\nfatal = "5"', "fatal; a handler has it: @app.handler(fatal=...)"),
        ("[consumer]\nmax_attempts = 3", "unknown key: consumer.max_attempts; a handler has it: @app.handler(max_att"),
        ('[queues.default]\ntimeout = "5m"', "unknown key: queues.default.timeout; a handler has it"),
        ('[recurrences.n]\nevery = "1m"', "recurrences.n: handler: missing; name the handler of its messages"),
        ('[recurrences.n]\nhandler = "a"\nschedule = "@daily"', "recurrences.n.schedule; did you mean cron?"),
        ("[consumr]\n", "unknown key: consumr; did you mean consumer?"),
        ("[Consumer]\n", "unknown key: Consumer; did you mean consumer?"),
        ('directory = "/"', "unknown key: directory;"),
        ("[dashboards]\n", "unknown key: dashboards;"),
        ("[queue.reports]\n", "unknown key: queue;"),
        ("[commands.nightly]\n", "commands.nightly.command: []; empty"),
        ('[consumer]\nconcurrency = "3"', "consumer.concurrency: 3; expected an integer"),
        ("[consumer]\nconcurrency = true", "consumer.concurrency: True; expected an integer"),
        ("[consumer]\nconcurrency = 1.5", "consumer.concurrency: 1.5; expected an integer"),
        ('[consumer]\ntolerance_factor = "5"', "consumer.tolerance_factor: 5; expected a number"),
        ('[consumer]\nqueues = "mail"', "consumer.queues: mail; expected a list"),
        ('[consumer]\nqueues = ["mail", 3]', "consumer.queues: 3; expected text"),
        ('[consumer]\nqueues = [""]', "consumer.queues: ; use 1 to 64"),
        ('[consumer]\nqueues = ["a b"]', "consumer.queues: a b; use 1 to 64"),
        ('namespace = "a:b"', "namespace: a:b; use 1 to 64"),
        ("consumer = 5", "consumer: 5; expected a section of keys"),
        ('[consumer]\nhandoff = "x"', "consumer.handoff: x; expected 'deadline' or 'baton'"),
        ('durability = "never"', "durability: never; expected 'everysec' or 'strict'"),
        ('[consumer]\ntimeout = "5 minutes ago"', "consumer.timeout: 5 minutes ago; units are ms, s, m, h, d"),
        ("[consumer]\ntimeout = [1]", "consumer.timeout: [1]; expected a number"),
        ("[consumer]\ntimeout = true", "consumer.timeout: True;"),
        ("[consumer]\ntimeout = 0", "consumer.timeout: 0; must be > 0, and at most 365d"),
        ("[consumer]\ntimeout = -5", "consumer.timeout: -5; must be 0 or more"),
        ("[consumer]\ntimeout = inf", "consumer.timeout: inf; must be 0 or more, and finite"),
        ("[consumer]\ntimeout = 1" + "0" * 400, "consumer.timeout:"),
        ("[consumer]\ntimeout = 1e300", "consumer.timeout: 1e+300; must be > 0, and at most 365d"),
        ("[mover]\nidle_time = 0", "mover.idle_time: 0; must be > 0"),
        ('[mover]\ngrace = "400d"', "mover.grace: 34560000; must be between 500ms and 365d"),
        ("[consumer]\ntolerance_factor = nan", "consumer.tolerance_factor: nan; must be > 0"),
        ("[consumer]\ntolerance_factor = 0", "consumer.tolerance_factor: 0; must be > 0"),
        ("[consumer]\noverrun_target = 0", "consumer.overrun_target: 0; must be > 0, and at most 1"),
        ("[consumer]\noverrun_target = 1.5", "consumer.overrun_target: 1.5; must be > 0, and at most 1"),
        ("[consumer]\noverrun_target = nan", "consumer.overrun_target: nan; must be > 0, and at most 1"),
        ("[consumer]\nconcurrency = 0", "consumer.concurrency: 0; must be 1-256"),
        ("[consumer]\nconcurrency = 100000", "consumer.concurrency: 100000; must be 1-256"),
        ("[consumer]\ninstances = 65", "consumer.instances: 65; must be 1-64"),
        ("[mover]\nbatch_size = 9\npage_size = 9", "unknown key: mover.batch_size"),
        ("[mover]\npage_size = 501", "mover.page_size: 501; must be 1-500"),
        ("[strict]\nreplicas = 0", "strict.replicas: 0; must be 1-99"),
        ("[strict]\nreplicas = 1", "strict.replicas: 1; the embedded server has none"),
        ("[strict]\naof = true", "strict.aof: True; the embedded server needs none, it writes to disk at once"),
        ("[strict]\nwithin = 0", "strict.within: 0; must be between 1ms and 1m"),
        ('[consumer]\nmin_margin = "60s"', "consumer.min_margin: 60; no time left to work, as timeout is 60s"),
        ("[consumer]\nmemory_limit = 256", "consumer.memory_limit: 256; too little for any process"),
        ('[consumer]\nmemory_limit = "256 apples"', "consumer.memory_limit: 256 apples; write bytes or a unit"),
        ('[consumer]\nschedule = "61 * * * *"', "consumer.schedule: 61 * * * *; minute must be 0-59, field 1"),
        ('[consumer]\nschedule = "* * * *"', "consumer.schedule: * * * *; four fields, need five"),
        ('[consumer]\nschedule = "0 * * * * *"', "six fields, need five"),
        ('[mover]\nschedule = "*/0 * * * *"', "mover.schedule: */0 * * * *; minute step must be 1 or more, field 1"),
        ('[mover]\nschedule = "* 5-1 * * *"', "hour has a reversed range: write 5,1 or two ranges, field 2"),
        ('[mover]\nschedule = "0 0 * * sat-sun"', "day of week has a reversed range: write sat,sun or two ranges"),
        ('[consumer]\nschedule = "@reboot"', "consumer.schedule: @reboot; @reboot names no time"),
        ('[consumer]\nschedule = "0 0 30 2 *"', "no such day ever comes"),
        (
            'store = "http://h"',
            "store: http://h; use embedded, redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://",
        ),
        ('store = "redis"', "store: redis; use embedded"),
        ('store = "REDIS://h"', "store: REDIS://h; write redis:// in small letters"),
        ('store = "redis+sentinel://h"', "store: redis+sentinel://h; name the service after the Sentinels"),
        ('store = "redis+cluster://h1,h2:0"', "the port must be 1-65535"),
        ('store = "redis+cluster://h1,h2/1"', "a cluster has no numbered databases"),
        ('store = "redis://h:99999"', "the port must be 1-65535"),
        ('store = "redis://h:0"', "the port must be 1-65535"),
        ('store = "redis://h/abc"', "store: redis://h/abc; the database must be an integer"),
        ('store = "redis://h?db=abc"', "the database must be an integer"),
        ('store = "redis://:a@b/2@h/0"', "and write / ? # @ in a password as %2F %3F %23 %40"),
        ('store = "unix://"', "name the socket by its whole path"),
        ('store = "unix://run/valkey.sock"', "name the socket by its whole path"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_in_one_line(text: str, message: str, place: Path) -> None:
    assert message in str(refused(text, place))


@pytest.mark.parametrize(
    "url",
    [
        "http://u:secret@h",
        "redis://:secret@h:99999",
        "redis://:se#cret@h",
        "redis://:se/cret@h",
        "redis://user:secret",
        "redis://user:secret@h/abc",
        "redis+sentinel://user:secret@h",
        "redis+sentinel://h/m?sentinel_password=secret&x=1",
        "user:secret@h",
        "redis://h/abc?password=secret",
        "redis://[secret@h",
    ],
)
@pytest.mark.parametrize("source", ["file", "variable", "flag", "wrong type", "wrong key", "syntax"])
def test_a_password_is_never_shown(url: str, source: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"file": f'store = "{url}"', "wrong type": f'store = ["{url}"]', "syntax": f'store = "{url}'}
    files["wrong key"] = f'[consumer]\nhandoff = "{url}"' if "://" in url else f'stroe = "{url}"'
    (place / "config.toml").write_text(files.get(source, ""))
    if source == "variable":
        monkeypatch.setenv("POLLCONSUMER_STORE", url)
    with pytest.raises(ConfigurationError) as caught:
        load_settings(store=url if source == "flag" else None)
    assert "cret" not in str(caught.value)


def test_a_named_file_that_is_missing_is_refused_with_its_absolute_path(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match="not found: " + re.escape(shown(place / "no.toml"))):
        load_settings(Path("no.toml"))
    (place / "file").touch()
    monkeypatch.setenv("POLLCONSUMER_CONFIG", "file/no.toml")
    with pytest.raises(ConfigurationError, match="not found"):
        load_settings()


def test_a_directory_for_a_file_is_refused(place: Path) -> None:
    (place / "config.toml").mkdir()
    with pytest.raises(ConfigurationError, match="is a directory"):
        load_settings()


def test_a_file_that_may_not_be_read_is_a_matter_of_permission(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "config.toml").touch()
    monkeypatch.setattr(os, "open", mock.Mock(side_effect=PermissionError(13, "Permission denied")))
    with pytest.raises(PermissionDenied, match="permission denied") as caught:
        load_settings()
    assert caught.value.exit_code == 77


def test_a_file_that_is_not_utf8_is_refused(place: Path) -> None:
    (place / "config.toml").write_bytes(b'namespace = "\xff"')
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        load_settings()


def test_a_pipe_is_refused_since_it_can_be_read_but_once() -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, b'namespace = "x"')
    os.close(write_end)
    with pytest.raises(ConfigurationError, match="is a pipe, not a plain file"):
        load_settings(Path(f"/dev/fd/{read_end}"))
    os.close(read_end)
    assert load_settings(Path(os.devnull)) == Settings(directory=Path("/dev"), config=Path(os.devnull))


def test_a_current_directory_that_is_gone_is_refused(place: Path, tmp_path: Path) -> None:
    place.rmdir()
    with pytest.raises(ConfigurationError, match="current directory"):
        load_settings()
    (tmp_path / "c.toml").touch()
    assert load_settings(tmp_path / "c.toml").directory == tmp_path


@pytest.mark.parametrize(
    ("section", "flags", "error", "message"),
    [
        ("consumer", {"concurrency": 0}, UsageError, "--concurrency: 0; must be 1-256"),
        ("mover", {"min_margin": 60.0}, UsageError, "--min-margin: 60; no time left to work, as timeout is 60s"),
        ("consumer", {"min_margin": 60.0}, UsageError, "--min-margin: 60; no time left to work, as timeout is 60s"),
        ("consumer", {"timeout": 5.0, "min_margin": 5.0}, UsageError, "--min-margin: 5; no time left to work"),
        ("consumer", {"schedule": "* * *"}, UsageError, "--schedule: * * *; three fields, need five"),
        ("mover", {"page_size": 0}, UsageError, "--page-size: 0; must be 1-500"),
    ],
)
def test_what_a_flag_sets_is_refused_under_its_name(
    section: Any, flags: dict[str, object], error: type[PollConsumerError], message: str
) -> None:
    with pytest.raises(error) as caught:
        with_flags(Settings(), section, flags)
    assert message in str(caught.value)


def test_flags_that_were_not_given_change_nothing() -> None:
    settings = Settings()
    assert with_flags(settings, "consumer", {"timeout": None, "queues": ()}) is settings
    changed = with_flags(settings, "consumer", {"timeout": 30.0, "queues": ("a",), "grace": None})
    assert changed.consumer == ConsumerSettings(timeout=30.0, queues=("a",))


def test_what_is_strict_is_asked_of_the_store_of_a_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in (("REPLICAS", "1"), ("AOF", "true")):
        monkeypatch.setenv(f"POLLCONSUMER_STRICT__{variable}", value)
        assert load_settings(store="redis://h").store == "redis://h"
        with pytest.raises(ConfigurationError, match="the embedded server"):
            load_settings()
        monkeypatch.delenv(f"POLLCONSUMER_STRICT__{variable}")


def test_the_store_of_a_flag_is_configuration_and_the_namespace_of_one_is_usage() -> None:
    with pytest.raises(ConfigurationError, match=r"^--store: http://h;"):
        load_settings(store="http://h")
    with pytest.raises(UsageError, match=r"^--namespace: a b;"):
        load_settings(namespace="a b")


@pytest.mark.parametrize(
    "url",
    [
        "embedded",
        "redis://h",
        "redis:///1",
        "rediss://u:p@h:6380/2?ssl_cert_reqs=none",
        "redis://[::1]:6379/0",
        "unix:///run/my%20own/valkey.sock?db=0",
        "unix://u:p@/run/a@b.sock",
    ],
)
def test_stores_that_can_be_meant_are_taken(url: str) -> None:
    check_given(Settings(store=url), ["store"])


@pytest.mark.parametrize(
    "expression", ["* * * * *", "*/5 0-6 1,15 JAN-MAR MON", "0 0 L * *", "0 0 * * 5#2", "0 0 29 2 *"]
)
def test_cron_expressions_that_can_be_meant_are_taken(expression: str) -> None:
    check_cron(expression)


@given(st.text(alphabet="0123456789*/,-#LW @MON", max_size=30))
def test_any_text_is_a_cron_expression_or_is_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        check_cron(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [("256MB", 256_000_000), ("256m", 256_000_000), ("1GiB", 1024**3), (1048576, 1048576), ("1.5 gb", 1_500_000_000)],
)
def test_memory_is_bytes_or_a_number_with_a_unit(text: str | int, size: int) -> None:
    assert parse_memory(text) == size


# What becomes of them


def test_settings_of_another_version_are_taken_as_far_as_they_are_known(place: Path) -> None:
    settings = load_settings(namespace="mine")
    values = as_values(settings)
    values["consumer"] |= {"new": 1}
    values |= {"new_section": {"a": 1}, "new": True}
    assert settings_of(json.loads(json.dumps(values)), place, settings.config, lenient=True) == settings


@pytest.mark.parametrize("text", ['[consumer]\nschedule = "* * * * *"\n', "[consumer]\ntimeout = 0\n"])
def test_no_pydantic_is_imported_to_read_settings_or_to_say_what_is_wrong(text: str, place: Path) -> None:
    script = (
        "import sys; from pollconsumer.interface.settings import load\n"
        "try: load.load_settings()\n"
        "except load.ConfigurationError as error: print(error)\n"
        "print(*sorted({'pydantic', 'pydantic_settings', 'click'} & set(sys.modules)))"
    )
    (place / "config.toml").write_text(text)
    said = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert said.splitlines()[-1] == ""
    assert ("must be > 0" in said) is ("timeout" in text)


def test_state_is_kept_in_the_directory_that_is_named_and_nowhere_with_none(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "config.toml").write_text('state = "kept"')
    assert load_settings().state_files().writable_directory() == place / "kept"
    monkeypatch.setenv("POLLCONSUMER_STATE", "none")
    files = load_settings().state_files()
    assert (files.writable_directory(), files.write("one", b"")) == (None, False)


def test_a_state_directory_without_a_name_is_refused(place: Path) -> None:
    assert str(refused('state = ""', place)) == "config.toml: state: ; name a directory, or none to keep nothing"


@pytest.mark.parametrize(
    ("variable", "rule"),
    [
        ("LOGS__TARGET", "write stderr, syslog, or a file's path"),
        ("DASHBOARD__STATIC", "name a directory"),
        ("SPOOL", "name a directory"),
        ("SERVER", "name a valkey-server or a redis-server by its path"),
        ("STATE", "name a directory, or none to keep nothing"),
    ],
)
def test_a_path_in_the_home_of_a_user_who_does_not_exist_is_refused(
    variable: str, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"POLLCONSUMER_{variable}", "~nosuchuser/x")
    with pytest.raises(ConfigurationError) as caught:
        load_settings()
    assert str(caught.value) == f"POLLCONSUMER_{variable}: ~nosuchuser/x; {rule}"


def is_idna(name: str) -> bool:
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    return True


@given(st.text(st.sampled_from("a-.ä"), max_size=5) | st.integers(61, 66).map(lambda length: f"a.{'b' * length}.c"))
def test_a_host_is_one_that_the_codec_takes(name: str) -> None:
    assert is_host(name) is is_idna(name)


@pytest.mark.parametrize("name", ["a" * 63, "a" * 64, f"{'a' * 64}.b", f"b.{'a' * 63}.", "b..c", ""])
def test_so_are_those_with_a_part_of_an_odd_length(name: str) -> None:
    assert is_host(name) is is_idna(name)


def test_the_codec_of_internationalised_names_is_not_imported_for_another_one() -> None:
    program = "import sys\nfrom pollconsumer.interface.settings import values\n"
    program += "values.check_store('redis://example.org:6379')\nassert 'encodings.idna' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
