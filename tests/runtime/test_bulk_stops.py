"""When a call of a bulk handler stops: once all of its messages are to."""

from __future__ import annotations

from typing import Any

from pollconsumer.runtime.session.attempts import BulkAttempt, BulkCalls


class Stops:
    def __init__(self) -> None:
        self.standing = set[str]()

    def asked(self, message: Any) -> bool:
        return message in self.standing


def test_a_call_stops_once_all_of_its_messages_are_to() -> None:
    stops: Any = Stops()
    nothing: Any = None
    calls = BulkCalls(stops, nothing)
    messages: Any = ["first", "second"]
    call = BulkAttempt(messages[0], *[nothing] * 3)
    call.attempts = [call._replace(reservation=each) for each in messages]
    calls.add(call)
    stops.standing.add("second")
    assert calls.stoppable(messages[1]) is None
    stops.standing.add("first")
    assert all(calls.stoppable(each) is messages[0] for each in messages)
