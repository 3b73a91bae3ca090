"""Names of keys. A queue's keys share one hash tag, and so do those of a namespace: no script touches two slots."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pollconsumer.core.errors import BadData
from pollconsumer.core.message import check_queue
from pollconsumer.store.keyspace import CONTROL_SUFFIXES, suffix

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pollconsumer.store.scripts import Script


def queue_names(stored: Iterable[bytes]) -> list[str]:
    """In order, and without what cannot be the name of a queue: somebody else wrote it."""
    names = []
    for each in stored:
        with suppress(BadData, UnicodeDecodeError):
            names.append(check_queue(each.decode()))
    return sorted(names)


class Keys:
    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    def queue(self, queue: str, name: str) -> str:
        return f"{{{self.namespace}:{queue}}}:{suffix(name)}"

    def of_script(self, script: Script, queue: str) -> list[str]:
        prefix = f"{{{self.namespace}:{queue}}}:"
        return [prefix + each for each in script.suffixes]

    def control(self, name: str) -> str:
        """A key of the namespace itself: leases, ledger, durations."""
        return f"{{{self.namespace}}}:{CONTROL_SUFFIXES.get(name, name)}"
