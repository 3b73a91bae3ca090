"""The parts of a URL that names several hosts. `urlsplit` refuses one whose second host is in brackets."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl


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
