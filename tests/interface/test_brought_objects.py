"""What settings name in the user's modules, a client or credentials: found beside the configuration, or refused."""

from __future__ import annotations

import re
import sys
from functools import partial
from typing import TYPE_CHECKING

import fakeredis
import pytest

from pollconsumer import PollConsumer
from pollconsumer.core.errors import ConfigurationError
from pollconsumer.interface.on_demand import launch_environment
from pollconsumer.interface.settings.load import load_settings
from pollconsumer.interface.user_imports import client_of, credentials_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pollconsumer.interface.settings.model import Settings

MODULE = """
import fakeredis, redis

class Provider:
    def get_credentials(self):
        return ("user", "canary")

provider, number = Provider(), 5
client = redis.Redis(password="canary")

def fake():
    return fakeredis.FakeRedis()

def make():
    return client

def none(): ...

async def coroutine():
    return client

def exiting():
    raise SystemExit(3)

def raising():
    raise RuntimeError("redis://user:canary@h is away")
"""
SERVER = 'store = "redis://h"\n'


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Settings]]:
    """Settings beside a module called ``bring``."""
    (tmp_path / "bring.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("import nothing_of_this_name\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("bring", "broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)  # of a test before, in this process

    def configured(text: str) -> Settings:
        (tmp_path / "config.toml").write_text(text)
        return load_settings(tmp_path / "config.toml")

    yield configured
    for name in ("bring", "broken"):
        sys.modules.pop(name, None)


def test_a_function_of_a_module_beside_the_configuration_gives_the_client(
    configured: Callable[[str], Settings],
) -> None:
    settings = configured('client = "bring:make"')
    client = client_of(settings)
    assert client.address == "redis://localhost:6379/0"
    assert "canary" not in f"{client} {settings!r} {settings.shown_store}"
    assert (settings.shown_store, settings.is_embedded) == ("client bring:make", False)


@pytest.mark.parametrize("name", ["provider", "Provider"])
def test_credentials_are_a_provider_or_what_makes_one(configured: Callable[[str], Settings], name: str) -> None:
    settings = configured(f'{SERVER}credentials = "bring:{name}"')
    assert credentials_of(settings).get_credentials() == ("user", "canary")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('client = "missing:make"', r"client: missing; No module named 'missing'; is it in the configuration"),
        ('client = "broken:make"', r"client: broken; No module named 'nothing_of_this_name', at .*broken\.py:1; is"),
        ('client = "bring:absent"', "client: bring:absent; bring has no absent"),
        ('client = "bring:client"', "client: bring:client: a Redis; name a function that returns a redis-py client"),
        ('client = "bring:none"', "client: bring:none: a NoneType; give a redis-py Redis, RedisCluster or Sentinel"),
        ('client = "bring:raising"', r"client: bring:raising; calling it raised .*, at .*bring\.py:\d+"),
        ('client = "bring:exiting"', "client: bring:exiting; calling it raised SystemExit: 3"),
        ('client = "bring:coroutine"', "client: bring:coroutine: a coroutine function; name a plain one"),
        (f'{SERVER}credentials = "bring:exiting"', "credentials: bring:exiting; calling it raised SystemExit: 3"),
        (f'{SERVER}credentials = "bring:coroutine"', "credentials: bring:coroutine: a coroutine function; name a"),
        (f'{SERVER}credentials = "bring:number"', "credentials: bring:number: a int; name a redis-py Credential"),
        (f'{SERVER}credentials = "bring:none"', "credentials: bring:none: a NoneType; name a redis-py Credential"),
        (f'{SERVER}credentials = "bring:absent"', "credentials: bring:absent; bring has no absent"),
        (f'{SERVER}credentials = "bring:raising"', "credentials: bring:raising; calling it raised"),
    ],
)
def test_what_gives_none_is_named_in_one_line(configured: Callable[[str], Settings], text: str, said: str) -> None:
    settings = configured(text)
    found = partial(credentials_of if settings.client is None else client_of, settings)
    with pytest.raises(ConfigurationError) as caught:
        found()
    assert re.match(said, str(caught.value))
    assert "\n" not in str(caught.value)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f'{SERVER}client = "a:b"', "client: a:b; store names another: keep one of them"),
        ('client = "a"', "client: a; write module:function, as in myapp.redis:client"),
        ('client = "a:b"\ncredentials = "a:b"', "credentials: a:b; the client has its own login: give it the provider"),
        ('credentials = "a:b"', "credentials: a:b; the embedded server has no users: name a store of yours"),
        ('store = "redis://:canary@h"\ncredentials = "a:b"', "credentials: a:b; the store's URL has a login: keep one"),
        ('store = "redis://h?username=u"\ncredentials = "a:b"', "credentials: a:b; the store's URL has a login"),
    ],
)
def test_two_stores_or_two_logins_are_refused(configured: Callable[[str], Settings], text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        configured(text)
    assert str(caught.value).rpartition("config.toml: ")[2].startswith(said)
    assert "canary" not in str(caught.value)


def test_a_store_that_is_given_on_the_way_goes_before_the_client_of_the_file(
    configured: Callable[[str], Settings], tmp_path: Path
) -> None:
    configured('client = "bring:make"')
    found = load_settings(tmp_path / "config.toml", store="embedded")
    assert (found.client, found.is_embedded) == (None, True)
    configured(f'{SERVER}credentials = "bring:provider"')
    assert load_settings(tmp_path / "config.toml", store="embedded").is_embedded
    assert load_settings(tmp_path / "config.toml", store="redis://other").credentials == "bring:provider"


@pytest.mark.parametrize(
    ("text", "store"),
    [('client = "bring:make"', "redis://other"), (f'{SERVER}credentials = "bring:provider"', "embedded")],
)
def test_a_launch_that_a_producer_starts_has_the_store_that_the_producer_was_given(
    configured: Callable[[str], Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, store: str
) -> None:
    configured(text)
    settings = load_settings(tmp_path / "config.toml", store=store)
    for name, value in launch_environment(settings, (store, None)).items():
        monkeypatch.setenv(name, value)
    found = load_settings()
    assert (found.store, found.client, found.credentials) == (store, None, None)


def test_a_producer_with_a_client_of_its_own_starts_no_launch_on_another_store(
    configured: Callable[[str], Settings], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    configured('consumer.on_demand = "process"')
    app = PollConsumer(config=tmp_path / "config.toml", store=fakeredis.FakeRedis())
    app.enqueue("nobody", {})
    assert "no launch on demand: a launch of its own: an application with a client of its own" in caplog.text


def test_credentials_go_with_the_password_of_sentinels(configured: Callable[[str], Settings]) -> None:
    text = 'store = "redis+sentinel://h/service?sentinel_password=x"\ncredentials = "bring:provider"'
    assert configured(text).credentials == "bring:provider"


def test_an_application_uses_the_client_of_its_configuration(
    configured: Callable[[str], Settings], tmp_path: Path
) -> None:
    configured('client = "bring:fake"')
    app = PollConsumer(config=tmp_path / "config.toml")
    assert app.enqueue("h", {}).status().state == "ready"


def test_an_application_uses_the_client_that_it_is_given_whatever_the_configuration_says(
    configured: Callable[[str], Settings], tmp_path: Path
) -> None:
    configured(f'{SERVER}credentials = "bring:provider"')
    client = fakeredis.FakeRedis(decode_responses=True)
    app = PollConsumer(config=tmp_path / "config.toml", store=client, namespace="mine")
    handle = app.enqueue("h", {"n": 1})
    assert handle.status().state == "ready"
    assert [*app.messages(state="ready")] == [handle]
    assert all(key.startswith("{mine") for key in client.scan_iter())
    with pytest.raises(ConfigurationError, match="a int; give a redis-py Redis"):
        PollConsumer(store=5)  # type: ignore[arg-type]
