"""Turns error replies of the server, and errors of its connections, into our exceptions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pollconsumer.core.errors import LeaseLost, PermissionDenied, PollConsumerError, StoreRefused, StoreUnreachable

RESTORE = "restore its data, or accept it: pollconsumer store adopt"
_TRANSIENT = (
    "READONLY", "LOADING", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "BUSY", "OOM", "MISCONF", "NOREPLICAS", "UNBLOCKED"
)  # fmt: skip
_FULL = {
    "OOM": "its memory is full: raise maxmemory, or purge messages",
    "MISCONF": "it cannot write its file: free space on its disk; its log says more",
}
_REFUSED_IN_SCRIPT = ("ACL failure in script", "The user executing the script can't")
LOGIN_REFUSED = ("NOAUTH", "WRONGPASS", "ERR AUTH")
_FOREIGN = "another program writes to our namespace; choose another"
_REFUSALS = (
    (r"FORGOTTEN\b", "store emptied while it was used", "", RESTORE),
    (r"(?:MOVED|ASK) (?:.* )?(.*)", "store is a cluster", r"\1 has a key", "write redis+cluster://"),
    (
        r"(?:ERR )?(.*(?:DB index is out of range|SELECT is not allowed).*)",
        "no such database", r"\1", "name another in the store's URL",
    ),
    (r"(?:FOREIGN(?: |$)|\S+ (?=.*is not an integer))(.*)", "key of another program", r"\1", _FOREIGN),
    (r"(.*WRONGTYPE.*)", "key of a wrong type", r"\1", "another program uses our namespace; choose another"),
    (
        r"ERR unknown (?:sub)?command '([^']+)'",
        "server without a command", r"\1", "have it enabled under its own name: see docs/reference/rights.md",
    ),
    (
        r"(?!.*user_script)(?:ERR )?(.*)",
        "the store refused a command", r"\1", "is it a Redis or a Valkey? see docs/reference/rights.md",
    ),
)  # fmt: skip
"""For each beginning of an error reply: the problem, the part of the reply to show, and the fix, for the exception."""
_OF_SOCKETS = ("pollconsumer", "socket", "ssl", "contextlib", "gevent", "eventlet")
"""Packages whose code may raise an OSError because a connection is lost."""
_NO_MORE_CLIENTS = "ERR max number of clients reached"


class ErrorReply(Exception):
    """An error reply of the server, with its text unchanged."""


class Unanswered(Exception):
    """A call was not answered, or met an error that may pass. ``sent``: the server may have carried it out."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


class OutOfTime(Unanswered):
    """There was no time left to connect, so nothing was sent."""

    def __init__(self) -> None:
        super().__init__("no time", sent=False)


def raise_if_error(answer: Any, command: Sequence[Any] = ()) -> None:
    """If ``answer`` is an error reply, raise its exception. If the error concerns a key, the exception has the first
    key of ``command``."""
    if isinstance(answer, ErrorReply):
        raise _exception_for(str(answer), command) from None


def _exception_for(text: str, command: Sequence[Any]) -> Exception:
    is_script = command[:1] == ("EVALSHA",)
    key = "".join(map(str, command[3:4] if is_script else command[1:2]))
    kind, _, rest = text.partition(" ")
    if text.startswith(LOGIN_REFUSED):
        fix = "check user and password: those of the store's URL, or what credentials or client give"
        return PermissionDenied("authentication failed", None, fix)
    if kind == "FENCED":
        return LeaseLost("lease lost", rest or None, "a newer launch holds it")
    if kind == "NOPERM" or any(reply in text for reply in _REFUSED_IN_SCRIPT):
        if named := re.search(r"no permissions to run the '([^']+)' command", text):
            return _rights_missing([named[1].encode()])
        return PermissionDenied(
            "not permitted", text.removeprefix("NOPERM "), "extend the access rules of the store's user"
        )
    if kind in _TRANSIENT or text == _NO_MORE_CLIENTS:
        return Unanswered(text, sent=False)
    for pattern, problem, shown, fix in _REFUSALS:
        if found := re.match(pattern, text):
            value = found.expand(shown) or None
            if not problem.startswith("key "):
                return StoreRefused(problem, value, fix)
            if key and kind != "FOREIGN":
                value = f"one of {key[: key.find('}') + 1]}" if is_script else key
            return _about(key, StoreRefused(problem, value, fix))
    # A bug of ours, shown in full: scripts must bear any value of their keys.
    return _about(key, PollConsumerError(f"the store refused a command: {text.removeprefix('ERR ')}"))


def unreachable(address: str, met: Unanswered) -> StoreUnreachable:
    """The error for a call that was not answered until its patience ended. ``met``: why its last try failed."""
    fix = _FULL.get(str(met).partition(" ")[0])
    if fix is None:
        return StoreUnreachable("store unreachable", address, f"it says: {met}")
    error = StoreUnreachable("store cannot write", address, f"it says: {met}; {fix}")
    error.full = True
    return error


def _about(key: str, error: PollConsumerError) -> PollConsumerError:
    error.key = key
    return error


def not_understood(reply: object) -> StoreRefused:
    return StoreRefused(
        "not an answer of Redis", reply, "does the store's URL name a Redis or a Valkey? If so, report what -v shows"
    )


def refuse_without(lacking: Sequence[bytes]) -> None:
    """Raise PermissionDenied, with their names, if any commands are ``lacking``."""
    if lacking:  # GUARD refusal
        raise _rights_missing(lacking)


def _rights_missing(commands: Sequence[bytes]) -> PermissionDenied:
    wanted = " ".join(f"+{command.decode().lower()}" for command in commands)
    return PermissionDenied("rights missing", wanted, "the store's user needs them: see docs/reference/rights.md")


class Interruption(Exception):
    """A signal handler raised ``error``, an OSError such as TimeoutError, within a call. The connection may be
    intact."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error)
        self.error = error


def raise_if_thrown(error: OSError) -> None:
    """Raise Interruption if ``error`` has no errno, unlike the system's, and was raised outside of `_OF_SOCKETS`."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if error.errno is None and trace is not None:
        package = str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0]
        if package not in _OF_SOCKETS:
            raise Interruption(error)
