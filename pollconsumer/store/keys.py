"""Names of keys. A queue's keys share a hash tag, as do those of a namespace: no script touches two slots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pollconsumer.store.keyspace import CONTROL_SUFFIXES, suffix

if TYPE_CHECKING:
    from pollconsumer.store.scripts import Script


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
