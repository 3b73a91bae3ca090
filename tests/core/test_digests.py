"""Digests by the interpreter's own modules are those of hashlib."""

from __future__ import annotations

import hashlib

import pytest

from pollconsumer.core.notation.digests import sha1, sha256


@pytest.mark.parametrize("data", [b"", b"a", bytes(range(256)) * 300])
def test_digests_are_those_of_hashlib(data: bytes) -> None:
    assert sha1(data) == hashlib.sha1(data).hexdigest()
    assert sha256(data) == hashlib.sha256(data).hexdigest()
