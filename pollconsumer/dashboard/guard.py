"""Checks the host name of every request to a server of our own.

A page of somebody else's may point a name of its own to a loopback address (DNS rebinding), and its script then reads
what answers there. Such a request says that name as its host, so only an address, ``localhost``, or the name given as
``--host`` is answered.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import ip_address

from pollconsumer.dashboard.page_answer import PageAnswer, plain_answer
from pollconsumer.web.web_exchange import WebRequest

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)]|([\w.-]+))(?::\d{1,5})?", re.ASCII)


def guarded(answer: Callable[[WebRequest], PageAnswer], host: str) -> Callable[[WebRequest], PageAnswer]:
    """``answer``, but only to requests that name ``host``, an address, or ``localhost``."""

    def guard(request: WebRequest) -> PageAnswer:
        name = name_of(request.headers.get("host", ""))
        if name in ("localhost", host.lower()) or is_address(name):
            return answer(request)
        return plain_answer("this host name is not served here: use the address that the command printed", 421)

    return guard


def name_of(host: str) -> str:
    """The name or address in a Host header, without its port; empty if it is malformed."""
    found = _HOST.fullmatch(host)
    return (found[1] or found[2]).lower() if found else ""


def is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    return host == "localhost" or (is_address(host) and ip_address(host).is_loopback)
