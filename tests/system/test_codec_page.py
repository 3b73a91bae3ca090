"""The codecs of docs/payloads.md: encryption by the real library, keys in rotation, a directory for what is large."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import PollConsumer
from pollconsumer.testing import Sandbox
from tests.system.test_coming_from import code

if TYPE_CHECKING:
    from pathlib import Path

ENCRYPTED, SPILLING = code("payloads.md", "python", "Encryption")


def names_of(source: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(source, "payloads.md", "exec"), names)
    return names


def handling(app: PollConsumer, sandbox: Sandbox, text: str) -> Any:
    @app.handler("mail.send")
    def send(to: str) -> str:
        return to[:1000]

    handle = send.enqueue(text)
    sandbox.run(raising=True)
    return handle.wait()


def test_keys_are_rotated_and_what_an_earlier_one_encrypted_is_read() -> None:
    fernet = pytest.importorskip("cryptography.fernet")
    application = names_of(ENCRYPTED)["application"]
    old, new = fernet.Fernet.generate_key(), fernet.Fernet.generate_key()
    before, between, after = application([old], b"k"), application([new, old], b"k"), application([new], b"k")
    with Sandbox(between) as sandbox:
        waiting = [each.enqueue("mail.send", {"to": "ada"}) for each in (before, between, after)]
        assert handling(between, sandbox, "bob") == "bob"
        assert [each.status().result for each in map(between.message, [each.id for each in waiting])] == ["ada"] * 3
        assert before.enqueue("x", {"to": "a"}, id="1").duplicate is False
        assert after.enqueue("x", {"to": "a"}, id="1").duplicate is True


def test_what_is_large_is_spilled_to_the_directory(tmp_path: Path) -> None:
    app = names_of(SPILLING)["application"](tmp_path)
    with Sandbox(app) as sandbox:
        assert handling(app, sandbox, "small") == "small"
        assert [*tmp_path.iterdir()] == []
    other = names_of(SPILLING)["application"](tmp_path)
    with Sandbox(other) as sandbox:
        large = "x" * 70_000

        assert handling(other, sandbox, large) == large[:1000]
        assert len([*tmp_path.iterdir()]) == 1
