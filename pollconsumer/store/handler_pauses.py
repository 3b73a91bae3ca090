"""Handlers that are switched off for a time: launches park their messages."""

from __future__ import annotations

from pollconsumer.core.errors import NotFound
from pollconsumer.store.audit_log import demand_operator, note
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.queues.upkeep import offer_parked
from pollconsumer.store.reading.ledger import leases_of
from pollconsumer.store.reading.totals import all_names
from pollconsumer.store.server import known_queues

LISTENED_FOR_MS = 60_000
"""How long a marker stays: the same in ``lua/stop.lua``."""


class HandlerPauses:
    def __init__(self, wire: Wire, namespace: str) -> None:
        self._wire, self._keys = wire, Keys(namespace)
        self._key = self._keys.control("paused_handlers")

    def pause(self, handler: str) -> None:
        """Pause ``handler``."""
        self._turn(handler, "pause")
        self._wake_launches()

    def resume(self, handler: str) -> None:
        """End the pause of ``handler``, and offer its parked messages at once. NotFound if it is not paused; messages
        that an interrupted call left parked are offered nevertheless."""
        was_paused = self._turn(handler, "resume")
        self._wake_launches()
        names = all_names(self._wire, self._keys, [handler])
        for queue in known_queues(self._wire, self._keys):
            offer_parked(self._wire, self._keys, queue, names)
        if not was_paused:
            raise NotFound("handler is not paused", handler, "status lists those that are")

    def _turn(self, handler: str, what: str) -> bool:
        """Pause or resume ``handler``. Returns False if it was so already."""
        demand_operator(self._wire, self._keys, self._key)
        keys = [self._key, self._keys.control("answered")]
        turned = bool(self._wire.call("pause_handler", keys, [handler, int(what == "pause")]))
        if turned:
            note(self._wire, self._keys, what, "", [handler])
        return turned

    def _wake_launches(self) -> None:
        """Wake the heartbeats of all launches, which tell these what is paused."""
        leases = [each for each in leases_of(self._wire, self._keys) if each["role"] == "consumer"]
        markers = {
            f"{self._keys.queue(queue, 'stop_marker')}:{each['fence']}" for each in leases for queue in each["queues"]
        }
        for marker in sorted(markers):
            self._wire.command("RPUSH", marker, 1)  # GUARD launches are woken
            self._wire.command("PEXPIRE", marker, LISTENED_FOR_MS)
