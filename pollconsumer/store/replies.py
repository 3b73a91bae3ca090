"""Maps the server's error replies to our exceptions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from redis import exceptions

from pollconsumer.core.errors import LeaseLost, PermissionDenied, PollConsumerError, StoreRefused

RESTORE = "restore its data, or accept it: pollconsumer store adopt"
_PASSING = ("READONLY", "LOADING", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "BUSY", "OOM", "MISCONF", "NOREPLICAS")
_REFUSED = ("NOAUTH", "WRONGPASS", "NOPERM")
_REFUSED_IN_SCRIPT = ("ACL failure in script", "The user executing the script can't")
_CLASSES: dict[type, str] = {
    exceptions.NoPermissionError: "NOPERM",
    exceptions.ReadOnlyError: "READONLY",
    exceptions.OutOfMemoryError: "OOM",
    exceptions.BusyLoadingError: "LOADING",
    exceptions.TryAgainError: "TRYAGAIN",
    exceptions.ClusterDownError: "CLUSTERDOWN",
    exceptions.MasterDownError: "MASTERDOWN",
}


class Unanswered(Exception):
    """A call without an answer, or with a transient error. ``sent``: it may have been carried out."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


def raise_if_error(answer: Any) -> None:
    """Raise the exception for an error reply, by its prefix."""
    if not isinstance(answer, exceptions.RedisError):
        return
    if isinstance(answer, exceptions.AuthenticationError | exceptions.AuthorizationError):
        raise PermissionDenied("authentication failed", None, "check user and password of the store's URL") from None
    if isinstance(answer, exceptions.ConnectionError | exceptions.TimeoutError):
        raise Unanswered(str(answer), sent=False) from None
    text = str(answer)
    # redis-py strips some prefixes and uses error classes instead.
    kind = _CLASSES.get(type(answer)) or text.partition(" ")[0]
    if kind == "FENCED":
        raise LeaseLost("lease lost", text.partition(" ")[2] or None, "a newer launch holds it") from None
    if kind == "FORGOTTEN":
        raise StoreRefused("store emptied while it was used", None, RESTORE) from None
    if kind in _REFUSED or any(said in text for said in _REFUSED_IN_SCRIPT):
        if named := re.search(r"no permissions to run the '([^']+)' command", text):
            refuse_without([named[1].encode()])
        raise PermissionDenied("not permitted", text, "extend the access rules of the store's user") from None
    if kind in _PASSING:
        raise Unanswered(text, sent=False) from None
    if kind == "FOREIGN" or "is not an integer" in text:
        key = text.partition(" ")[2]
        raise StoreRefused("key is not ours", key, "another program writes to our namespace; choose another") from None
    if "WRONGTYPE" in text:
        raise StoreRefused("key of a wrong type", text, "another program uses our namespace; choose another") from None
    raise PollConsumerError("the store refused a command", text) from None


def refuse_without(lacking: Sequence[bytes]) -> None:
    """Raise PermissionDenied if any commands are ``lacking``."""
    if lacking:
        wanted = " ".join(f"+{command.decode().lower()}" for command in lacking)
        raise PermissionDenied("rights missing", wanted, "the store's user needs them: ACL SETUSER, see docs/store.md")
