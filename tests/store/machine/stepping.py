"""Steps of messages in flight, and signals."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from pollconsumer.core.errors import BadData
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.message_steps import Step, StepEntry, as_recorded
from pollconsumer.store.actions import MessageActions
from tests.conftest import NAMESPACE
from tests.store.acting import QUEUE
from tests.store.machine.intervening import Intervening
from tests.store.servers import server_ms

if TYPE_CHECKING:
    from tests.store.machine.model import Held

INSTANT = re.compile(rb"(?<=\t)\d+ ")
"""Of a signal."""
SIGNALS = st.sampled_from(["approved", "paid"])


class Stepping(Intervening):
    @precondition(lambda self: self.in_flight())
    @rule(data=st.data(), awaited=st.sampled_from(["", "approved", "paid"]), twice=st.booleans())
    def take_a_step(self, data: st.DataObject, awaited: str, *, twice: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.in_flight())))
        held, reservation = self.model.messages[name], self.reservation(name)
        number = len(held.steps) + 1
        text = as_recorded(Step(f"step#{number}", number, {"fence": self.fence}))
        before = reservation.row
        for _ in range(1 + twice):
            reservation.row = before
            self.store.record(self.launch.claim, reservation, StepEntry(number, number, text, awaited))
        held.steps.append(text.encode())
        held.awaited, held.has_kept = awaited, True
        recorded = self.store.recorded(reservation)[1]
        assert recorded is not None
        assert [*map(as_recorded, recorded.steps)] == [each.decode() for each in held.steps]

    @precondition(lambda self: self.model.messages)
    @rule(data=st.data(), signal=SIGNALS, value=st.integers(0, 9))
    def send_a_signal(self, data: st.DataObject, signal: str, value: int) -> None:
        held = self.one_of(data, State.SCHEDULED, State.RESERVED, State.READY)
        sender = MessageActions(self.wire, NAMESPACE)
        if held.state.has_ended:
            with pytest.raises(BadData, match=held.state.value):
                sender.signal(QUEUE, held.name, signal, value)
            return
        before = server_ms(self.wire)
        assert sender.signal(QUEUE, held.name, signal, value) == (held.signals.get(signal, value) == value)
        if signal in held.signals:
            return
        held.signals[signal] = value
        if held.state is State.SCHEDULED and held.awaited == signal and not held.booked:
            due = self.look.due(held.name)
            assert due is not None
            assert before <= due <= server_ms(self.wire)
            held.due = due

    @staticmethod
    def kept_of(held: Held) -> dict[str, bytes]:
        """What the store has of its checkpoint, steps and signals, without the instants of these."""
        kept = {} if held.checkpoint is None else {held.name: held.checkpoint}
        kept |= {f"{held.name}\n{number}": text for number, text in enumerate(held.steps, 1)}
        if held.steps or held.signals:
            kept[f"{held.name}\n"] = f"{len(held.steps)} {held.awaited}".encode()
        if held.signals:
            lines = (f"\n{name}\t{value}" for name, value in held.signals.items())
            kept[f"{held.name}\n0"] = "".join(lines).encode()
        return kept
