"""A trial of the server: messages live through their states in a namespace of their own, so that what it lacks is
named."""

from __future__ import annotations

import os
from typing import NamedTuple

from pollconsumer.core.errors import PermissionDenied, PollConsumerError, StoreRefused, StoreUnreachable
from pollconsumer.store.client.replies import not_understood
from pollconsumer.store.client.strict import MARKER
from pollconsumer.store.client.wire import MISREAD, Wire
from pollconsumer.store.keyspace import QUEUE_KEYS, Keys
from pollconsumer.store.rights import LAUNCH, OPERATOR, PRODUCER, lacking
from pollconsumer.store.trial.trial_steps import STEPS, TriedQueue

CONTROL = (
    "fences", "leases", "launches", "ledger", "queues", "queues_marker", "seen", "totals", MARKER,
    "lease:consumer:hold-lease:0", "next:consumer:hold-lease", "baton:consumer:hold-lease",
)  # fmt: skip
"""Keys of the namespace that the steps leave."""
UNKNOWN = "NO-SUCH-COMMAND"


class Lack(NamedTuple):
    """A lack of the server, as a ``step`` of the trial shows it."""

    step: str
    error: PollConsumerError

    @property
    def exit_code(self) -> int:
        known = isinstance(self.error, (PermissionDenied, StoreUnreachable))
        return self.error.exit_code if known else StoreRefused.exit_code


class ServerTrial:
    def __init__(self, wire: Wire, another: Wire, namespace: str) -> None:
        """``another``: a second connection to the server, on which a command waits. The keys of the trial's namespace
        begin as those of ``namespace``: whoever may use that may use them."""
        self._wire, self._another = wire, another
        self.namespace = f"{namespace}:trial-{os.urandom(8).hex()}"

    def lacks(self) -> list[Lack]:
        """Try each step. Returns what the server lacks. No key is left, unless the server refuses to remove it."""
        if refused := self._refused_commands():
            fix = "grant it to the store's user, or have the server enable it"
            return [Lack("commands", PermissionDenied("refused", each, fix)) for each in refused]
        found = list[Lack]()
        try:
            for step in STEPS:
                if (error := self._failure_of(step)) is not None:
                    found.append(Lack(step, error))
                if isinstance(error, StoreUnreachable):
                    break
        finally:
            found += self._remove()
        return found

    def _refused_commands(self) -> list[str]:
        """The commands of any role that the server refuses. Where it has no `acl_check_cmd`, each is sent, since a
        script that one of them ends does not say which. They change nothing of a key that is not there."""
        key, rights = Keys(self.namespace).control("fences"), sorted({*f"{PRODUCER} {LAUNCH} {OPERATOR}".split()})
        if lacking(self._wire, UNKNOWN, key):
            return [each.decode() for each in lacking(self._wire, " ".join(rights), key)]
        unknown = str(self._refusal_of(UNKNOWN, key)).partition(UNKNOWN)[0]
        refusals = {right: self._refusal_of(right, key) for right in rights}
        return [
            right
            for right, error in refusals.items()
            if isinstance(error, PermissionDenied) or (error is not None and str(error).startswith(unknown))
        ]

    def _refusal_of(self, command: str, key: str) -> PollConsumerError | None:
        try:
            self._wire.once([(*command.split("|"), key)])
        except PollConsumerError as error:
            return error
        return None

    def _failure_of(self, step: str) -> PollConsumerError | None:
        try:
            STEPS[step](TriedQueue(self._wire, self._another, self.namespace, step))
        except PollConsumerError as error:
            return error
        except MISREAD:  # a server that tells the time as Redis does, but answers a script otherwise
            return not_understood(self._wire.said)
        return None

    def _remove(self) -> list[Lack]:
        keys = Keys(self.namespace)
        names = [keys.control(name) for name in CONTROL]
        for queue in STEPS:
            names += [keys.queue(queue, word) for word in QUEUE_KEYS]
            names.append(f"{keys.queue(queue, 'successor_waits')}:consumer:{queue}")
            names.append(f"{{{self.namespace}:{queue}}}:{MARKER}")
        try:
            self._wire.all([("DEL", name) for name in names])
        except PollConsumerError as error:
            return [Lack(f"removal of {self.namespace}", error)]
        return []
