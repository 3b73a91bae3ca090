"""Whatever code of users raises is an answer: it is named, and ends no launch, no command and no thread."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from inspect import signature
from textwrap import indent
from typing import Any

import pytest

from pollconsumer import PollConsumer
from pollconsumer.core.messages.message import Codec
from pollconsumer.interface.api.registry import BulkOptions
from pollconsumer.interface.settings.declared import Settings
from pollconsumer.runtime.handling.handler import Hooks
from pollconsumer.store.client.address import CredentialProvider
from tests.site import Site

KINDS = """
import asyncio, json, logging
from typing import Annotated
from pydantic import BaseModel, BeforeValidator, create_model
from pollconsumer import Context, PollConsumer

class Own(BaseException): ...
class NamelessKind(type):
    __name__ = property(lambda _: 1 / 0)
class Nameless(Exception, metaclass=NamelessKind): ...
class Classless(Exception):
    __class__ = property(lambda _: exit(4))
class Mute(Exception):
    def __str__(self): raise Own
    __repr__ = __str__
class Opaque(BaseException):
    def __getattribute__(self, name): raise Own

KINDS = {kind.__name__: kind for kind in (
    SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, Own, Classless, Mute, Opaque, ValueError,
)} | {"Nameless": Nameless}

def failing(name, kind):
    def fail(*_, **__):
        raise KINDS[kind]("why")
    fail.__qualname__ = name
    return fail
"""
KIND_NAMES = [
    "SystemExit",
    "KeyboardInterrupt",
    "GeneratorExit",
    "CancelledError",
    "Own",
    "Classless",
    "Mute",
    "Opaque",
    "ValueError",
]
KIND_NAMES.append("Nameless")
UNREADABLE = {"Classless", "Opaque", "Nameless"}
"""Kinds that are not named, since their own code raises."""

PROBES = """
# the function of a handler
@app.handler(name, max_attempts=1)
def function() -> None: fail()

# the function of a coroutine
@app.handler(name, max_attempts=1)
async def function() -> None: fail()

# the function of a bulk handler
@app.handler(name, max_attempts=1, bulk=2)
def function(messages: list[dict]) -> None: fail()

# a type
class Model(BaseModel):
    x: Annotated[int, BeforeValidator(lambda x: fail())]
@app.handler(name, max_attempts=1)
def function(x: Model) -> None: ...

# a type of a bulk handler
@app.handler(name, max_attempts=1, bulk=2)
def function(messages: list[create_model("Model", x=Annotated[int, BeforeValidator(lambda x: fail())])]) -> None: ...

# option upgrade
@app.handler(name, max_attempts=1, upgrade=fail)
def function(y: int) -> None: ...

# option retry
class Policy:
    delay = staticmethod(fail)
@app.handler(name, retry=Policy())
def function() -> None: 1 / 0

# option fatal
class Checked(type):
    __instancecheck__ = fail
class Fatal(Exception, metaclass=Checked): ...
@app.handler(name, max_attempts=1, fatal=Fatal)
def function() -> None: raise ValueError(kind if kind not in UNREADABLE else "own class raises")

# codec decode
class Failing(Xor):
    decode = staticmethod(fail)
app = PollConsumer(codec=Failing())
@app.handler(name, max_attempts=1)
def function(x: int = 1) -> None: ...

# codec encode
class Failing(Xor):
    encode = staticmethod(fail)
app = PollConsumer(codec=Failing())
@app.handler(name, max_attempts=1)
def function(x: int = 1) -> int: return 1

# codec encode of a checkpoint
class Failing(Xor):
    encode = staticmethod(fail)
app = PollConsumer(codec=Failing())
@app.handler(name, max_attempts=1)
def function(context: Context, x: int = 1) -> None: context.checkpoint({})

# hook before
app.before(fail)
@app.handler(name)
def function() -> None: ...

# hook after
app.after(fail)
@app.handler(name)
def function() -> None: ...

# hook on_failure
app.on_failure(fail)
@app.handler(name, max_attempts=2)
def function() -> None: 1 / 0

# hook on_dead
app.on_dead(fail)
@app.handler(name, max_attempts=1)
def function() -> None: 1 / 0

# hook on_expired
app.on_expired(fail)
@app.handler(name)
def function() -> None: ...

# hook before_enqueue
app.before_enqueue(fail)
@app.handler(name, max_attempts=1)
def function(context: Context) -> None: context.enqueue("quiet", {})

# hook on_launch_end
app.on_launch_end(fail)
@app.handler(name)
def function() -> None: ...
"""
XOR = f"""
UNREADABLE = {UNREADABLE!r}
class Xor:
    def encode(self, data): return bytes(each ^ 0xFF for each in data)
    decode = encode
"""
ELSEWHERE = {"hook on_launch", "setting client", "setting credentials", "get_credentials"}
"""What users give, and whose own tests are below."""
OF_DATA = {"config", "store", "namespace", "patience"}
"""Parameters of an application that are no code."""


def probes() -> dict[str, str]:
    return {part.partition("\n")[0]: part for part in PROBES.split("# ")[1:]}


def given_by_users() -> Iterator[str]:
    """Everything that users give us to be called, as our own declarations list it."""
    yield from (f"hook {name}" for name, value in vars(Hooks(print)).items() if isinstance(value, list))
    for name, kind in BulkOptions.__annotations__.items():
        if any(word in str(kind) for word in ("Callable", "Policy", "Exception")):
            yield f"option {name}"
    methods = [name for name in vars(Codec) if not name.startswith("_")]
    yield from (f"codec {name}" for name in methods)
    yield from (name for name in vars(CredentialProvider) if not name.startswith("_"))
    assert set(signature(PollConsumer).parameters) == {*OF_DATA, "codec"}
    yield from (f"setting {name}" for name, field in Settings.model_fields.items() if "check_named" in named(field))


def named(field: Any) -> str:
    return str(field.metadata) + str(field.annotation)


def test_each_code_that_users_give_has_a_probe() -> None:
    assert {*given_by_users()} <= {*probes(), *ELSEWHERE}


def test_whatever_code_of_users_raises_is_named_and_ends_no_launch(site: Site) -> None:
    module = [KINDS, XOR]
    names = dict[str, tuple[str, str]]()
    for number, (probe, text) in enumerate(probes().items()):
        for kind in KIND_NAMES:
            names[name := f"p{number}.{kind}"] = probe, kind
            module.append(f"def probe(app, name, kind, fail):\n{indent('# ' + text, '    ')}")
            module.append(f"probe(PollConsumer(), {name!r}, {kind!r}, failing({name!r}, {kind!r}))")
    module.append("app = PollConsumer()\n@app.handler\ndef quiet() -> None: ...\n")
    (site.directory / "handlers.py").write_text("\n".join(module))
    lines = [line_of(name, probe) for name, (probe, _) in names.items()]
    (site.directory / "lines").write_text("\n".join(map(json.dumps, lines)))
    site.command("enqueue", "--ndjson", "lines")
    neighbour = site.enqueue("quiet")
    done = site.drain()
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert site.state(neighbour) == "completed"
    errors = {each["handler"]: each["last_error"] or "" for each in site.json("list", "--limit", "1000")}
    unnamed = []
    for name, (probe, kind) in names.items():
        wanted = "own class raises" if kind in UNREADABLE else kind
        said = [line for line in done.stderr.splitlines() if name in line or f"{name} " in line]
        if wanted not in errors.get(name, "") + "\n".join(said):
            unnamed.append((probe, kind, errors.get(name), said))
    assert not unnamed, "\n".join(map(str, unnamed)) + done.stderr


def line_of(name: str, probe: str) -> dict[str, Any]:
    line: dict[str, Any] = {"handler": name, "id": name, "queue": "default"}
    if probe.startswith("a type"):
        line |= {"payload": {"x": {"x": 1}}}
    if probe == "hook on_expired":
        line |= {"expires": "1ms"}
    if probe.startswith("codec decode"):
        line |= {"payload": {"pollconsumer:encoded": "AAAA"}}
    return line


# What is called elsewhere than beneath a launch's handlers

EXITING = ["SystemExit", "GeneratorExit", "Own", "Classless", "Opaque", "ValueError"]
FAILING = f"{KINDS}{XOR}app, fail = PollConsumer(codec=Xor()), failing('mine', 'KIND')\n"
SEND = "\n@app.handler\ndef send(x: int = 1) -> None: ...\n"
ENCODES = "class Failing(Xor):\n    encode = staticmethod(fail)\napp = PollConsumer(codec=Failing())\n"


def wanted(kind: str) -> str:
    return "own class raises" if kind in UNREADABLE else kind


@pytest.mark.parametrize("kind", EXITING)
@pytest.mark.parametrize(
    ("code", "command", "exit_code"),
    [
        (ENCODES, ("enqueue", "send"), 78),
        (ENCODES, ("enqueue", "--ndjson", "lines"), 65),
        (ENCODES, ("recurrences", "add", "daily", "send", '{"x": 2}', "--every", "1d"), 78),
        ("app.before_enqueue(fail)", ("enqueue", "send"), 78),
        ("app.on_launch(fail)", ("run", "--until-empty"), 78),
    ],
    ids=["one", "lines", "recurrence", "before_enqueue", "on_launch"],
)
def test_a_command_says_in_one_line_what_code_of_users_raised(
    site: Site, kind: str, code: str, command: tuple[str, ...], exit_code: int
) -> None:
    (site.directory / "handlers.py").write_text(f"{FAILING.replace('KIND', kind)}{code}{SEND}")
    (site.directory / "lines").write_text('{"handler": "send"}\n')
    done = site.command(*command)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (exit_code, "", 1), done.stderr
    assert wanted(kind) in done.stderr


@pytest.mark.parametrize("kind", EXITING)
def test_a_message_that_cannot_be_decoded_is_shown_as_it_is(site: Site, kind: str) -> None:
    (site.directory / "handlers.py").write_text(f"{FAILING.replace('KIND', kind)}Xor.decode = staticmethod(fail){SEND}")
    message = site.enqueue("send")
    assert site.state(message) == "ready"


PROVIDER = """
class Provider:
    get_credentials = staticmethod(fail)
"""


@pytest.mark.parametrize("kind", EXITING)
@pytest.mark.parametrize("setting", ["client", "credentials", "made credentials"])
def test_a_launch_says_in_one_line_what_a_setting_of_users_raised(setting: str, kind: str) -> None:
    names = {"client": 'client = "mine:fail"', "credentials": 'credentials = "mine:Provider"'}
    name = names.get(setting, 'credentials = "mine:fail"')
    listening = socket.create_server(("127.0.0.1", 0))
    store = "" if setting == "client" else f'store = "redis://127.0.0.1:{listening.getsockname()[1]}"\n'
    site = Site(f"{store}{name}\n")
    try:
        (site.directory / "mine.py").write_text(f"{FAILING.replace('KIND', kind)}{PROVIDER}{SEND}")
        done = site.command("run", "--timeout", "1s", "--idle-time", "100ms", "--grace", "1s")
        assert (done.returncode, len(done.stderr.splitlines())) == (69 if setting == "credentials" else 78, 1)
        assert wanted(kind) in done.stderr
    finally:
        site.close()
        listening.close()
