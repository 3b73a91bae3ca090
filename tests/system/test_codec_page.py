"""The codec of docs/payloads.md: encryption by the real library, with keys in rotation."""

from __future__ import annotations

from typing import Any

import pytest

from pollconsumer import PollConsumer
from pollconsumer.testing import Sandbox
from tests.system.test_coming_from import code

(ENCRYPTED,) = code("payloads.md", "python", "Encryption")


def handling(app: PollConsumer, sandbox: Sandbox, text: str) -> Any:
    @app.handler("mail.send")
    def send(to: str) -> str:
        return to

    handle = send.enqueue(text)
    sandbox.run(raising=True)
    return handle.wait()


def test_keys_are_rotated_and_what_an_earlier_one_encrypted_is_read() -> None:
    fernet = pytest.importorskip("cryptography.fernet")
    names: dict[str, Any] = {"__name__": "page"}
    exec(ENCRYPTED, names)
    application = names["application"]
    old, new = fernet.Fernet.generate_key(), fernet.Fernet.generate_key()
    before, between, after = application([old], b"k"), application([new, old], b"k"), application([new], b"k")
    with Sandbox(between) as sandbox:
        waiting = [each.enqueue("mail.send", {"to": "ada"}) for each in (before, between, after)]
        assert handling(between, sandbox, "bob") == "bob"
        assert [each.status().result for each in map(between.message, [each.id for each in waiting])] == ["ada"] * 3
        assert before.enqueue("x", {"to": "a"}, id="1").duplicate is False
        assert after.enqueue("x", {"to": "a"}, id="1").duplicate is True
