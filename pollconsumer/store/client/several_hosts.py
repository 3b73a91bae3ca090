"""The parts of a URL that names several hosts. `urlsplit` refuses one whose second host is in brackets."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl

_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class SeveralHosts(NamedTuple):
    """``login``, with its ``@``, and ``hosts``, with their ports, are as they were written."""

    login: str
    hosts: list[str]
    path: str
    options: dict[str, str]


def several_hosts(url: str) -> SeveralHosts:
    """ValueError if its options cannot be read."""
    _, _, rest = url.partition("://")
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    path, _, query = rest.removeprefix(authority).partition("?")
    login, at, hosts = authority.rpartition("@")
    return SeveralHosts(login + at, hosts.split(","), path, dict(parse_qsl(query, strict_parsing=bool(query))))


def take_boolean(options: dict[str, str], name: str, *, otherwise: bool) -> bool:
    """The option ``name``, which is removed. ValueError if it is neither true nor false."""
    text = options.pop(name, "")
    if text.lower() not in ("", *_BOOLEANS):
        raise ValueError(f"{name} must be true or false")
    return _BOOLEANS.get(text.lower(), otherwise)
