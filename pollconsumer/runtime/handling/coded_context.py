"""The context where an application has a codec: it decodes what the store has, and encodes what it is given."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pollconsumer.core.messages.codec import Undecodable, decoded_object, decoded_value, encoded_json, is_encoded
from pollconsumer.core.messages.coded_message import coded
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.core.messages.message_steps import Recorded, StepEntry
from pollconsumer.core.messages.payloads import encode_payload
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.delivery import Previous
from pollconsumer.runtime.handling.journal import Journal


class CodedContext(LaunchContext):
    """Undecodable is raised where a value is asked for that the codec cannot decode."""

    @property
    def state(self) -> dict[str, Any] | None:
        assert self._situation.codec is not None
        found = super().state
        return None if found is None else decoded_object(found, self._situation.codec)

    @property
    def previous(self) -> Previous | None:
        found = super().previous
        return None if found is None else found._replace(result=self._decoded(found.result))

    def checkpoint(self, state: Mapping[str, Any]) -> None:
        given = dict(state)
        super().checkpoint(given if is_encoded(given) else json.loads(self._encoded(encode_payload(given))))

    def _record(self, entry: StepEntry) -> None:
        """Record a step, whose result may be encoded already: by the handler's own process."""
        name, at, result, *until = json.loads(entry.json)
        if not is_encoded(result):
            result = json.loads(self._encoded(json.dumps(result, ensure_ascii=False).encode()))
        text = json.dumps([name, at, result, *until], ensure_ascii=False, separators=(",", ":"))
        super()._record(entry._replace(json=text))

    def end(self) -> None:
        try:
            super().end()
        except Undecodable:  # what was recorded cannot be compared
            self.unasked = ()

    def _ask_batch(self, *question: Any) -> Any:
        answer = super()._ask_batch(*question)
        if question[0] != "members":
            return answer
        found, after = answer
        return [(*each[:4], self._decoded(each[4]), each[5], self._decoded(each[6]), each[7]) for each in found], after

    def _opened_journal(self) -> Journal:
        if self._own_journal is None:
            found = Recorded.of(self._delivered.recorded)
            steps = [each._replace(result=self._decoded(each.result)) for each in found.steps]
            signals = [each._replace(value=self._decoded(each.value)) for each in found.signals]
            decoded = found._replace(steps=steps, signals=signals)
            self._own_journal = Journal(decoded, self._record, self._server_ms)
        return self._own_journal

    def _drafted(self, message: NewMessage) -> NewMessage:
        assert self._situation.codec is not None
        return coded(super()._drafted(message), self._situation.codec)

    def _decoded(self, value: Any) -> Any:
        assert self._situation.codec is not None
        return decoded_value(value, self._situation.codec)

    def _encoded(self, data: bytes) -> bytes:
        assert self._situation.codec is not None
        return encoded_json(data, self._situation.codec)
