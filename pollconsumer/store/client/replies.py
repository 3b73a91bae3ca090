"""Maps the server's error replies to our exceptions."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Any

from pollconsumer.core.errors import LeaseLost, PermissionDenied, PollConsumerError, StoreRefused

RESTORE = "restore its data, or accept it: pollconsumer store adopt"
_PASSING = (
    "READONLY", "LOADING", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "BUSY", "OOM", "MISCONF", "NOREPLICAS", "UNBLOCKED"
)  # fmt: skip
_REFUSED_IN_SCRIPT = ("ACL failure in script", "The user executing the script can't")
LOGIN_REFUSED = ("NOAUTH", "WRONGPASS", "ERR AUTH")
_MISREAD = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, struct.error)
"""What reading an answer of another form than the one that was asked for ends with."""
_READERS = ("pollconsumer.store.", "pollconsumer.core.")
_UNKNOWN = r"ERR unknown (?:sub)?command '([^']+)'"
_NO_MORE_CLIENTS = "ERR max number of clients reached"


class ErrorReply(Exception):
    """An error reply of the server, as it is."""


class Unanswered(Exception):
    """A call without an answer, or with a transient error. ``sent``: it may have been carried out."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


class OutOfTime(Unanswered):
    """No connection was made, since its caller has waited for long enough."""

    def __init__(self) -> None:
        super().__init__("no time", sent=False)


def raise_if_error(answer: Any) -> None:
    """Raise the exception for an error reply, by its prefix."""
    if not isinstance(answer, ErrorReply):
        return
    text = str(answer)
    if text.startswith(LOGIN_REFUSED):
        raise PermissionDenied(
            "authentication failed",
            None,
            "check user and password: those of the store's URL, or what credentials or client give",
        ) from None
    kind, _, rest = text.partition(" ")
    if kind == "FENCED":
        raise LeaseLost("lease lost", rest or None, "a newer launch holds it") from None
    if kind == "FORGOTTEN":
        raise StoreRefused("store emptied while it was used", None, RESTORE) from None
    if kind == "NOPERM" or any(said in text for said in _REFUSED_IN_SCRIPT):
        if named := re.search(r"no permissions to run the '([^']+)' command", text):
            refuse_without([named[1].encode()])
        raise PermissionDenied(
            "not permitted", text.removeprefix("NOPERM "), "extend the access rules of the store's user"
        ) from None
    if kind in _PASSING or text == _NO_MORE_CLIENTS:
        raise Unanswered(text, sent=False) from None
    if kind in ("MOVED", "ASK"):
        node = rest.rpartition(" ")[2]
        raise StoreRefused("store is a cluster", f"{node} has a key", "write redis+cluster://") from None
    if "DB index is out of range" in text or "SELECT is not allowed" in text:
        raise StoreRefused("no such database", text.removeprefix("ERR "), "name another in the store's URL") from None
    if kind == "FOREIGN" or "is not an integer" in text:
        raise StoreRefused("key is not ours", rest, "another program writes to our namespace; choose another") from None
    if "WRONGTYPE" in text:
        raise StoreRefused("key of a wrong type", text, "another program uses our namespace; choose another") from None
    if missing := re.match(_UNKNOWN, text):
        fix = "have it enabled under its own name; docs/store.md lists all that is needed"
        raise StoreRefused("server without a command", missing[1], fix) from None
    if "user_script" in text:  # a bug of ours, which is shown whole
        raise PollConsumerError(f"the store refused a command: {text.removeprefix('ERR ')}") from None
    fix = "is it a Redis or a Valkey? docs/store.md lists what it must know"
    raise StoreRefused("the store refused a command", text.removeprefix("ERR "), fix) from None


def misread(error: BaseException, said: object = None) -> StoreRefused | None:
    """The error in place of one that reading an answer ended with, which the server ``said`` in another form than it
    should; None for another error."""
    if not isinstance(error, _MISREAD) or isinstance(error, PollConsumerError):
        return None
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or not str(trace.tb_frame.f_globals.get("__name__")).startswith(_READERS):
        return None
    return not_understood(str(error) if said is None else said)


def not_understood(said: object) -> StoreRefused:
    return StoreRefused(
        "not an answer of Redis", said, "does the store's URL name a Redis or a Valkey? If so, report what -v shows"
    )


def refuse_without(lacking: Sequence[bytes]) -> None:
    """Raise PermissionDenied if any commands are ``lacking``."""
    if lacking:  # GUARD refusal
        wanted = " ".join(f"+{command.decode().lower()}" for command in lacking)
        raise PermissionDenied("rights missing", wanted, "the store's user needs them: ACL SETUSER, see docs/store.md")
