"""How a trial of failovers gets to many messages: calls that enqueue several, and failovers until there are enough."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from tests.failovers.servers import await_true
from tests.failovers.trial import Trial
from tests.trials.place import Place
from tests.trials.recording import ACCEPTED, read_accepted, read_executed

if TYPE_CHECKING:
    from tests.store.servers import Server


def test_each_message_of_a_call_is_recorded_once_all_are_accepted_and_is_handled(valkey: Server) -> None:
    place = Place(valkey.url)
    try:
        place.configure('handlers = ["tests.trials.handlers"]\n')
        producer = place.start_python("-m", "tests.trials.producing", "m", "0.01", "3")
        await_true(lambda: (place.directory / ACCEPTED).read_bytes().count(b"\n") > 3)
        producer.process.terminate()
        assert producer.process.wait(60) == 0
        assert place.run("-q", "run", "--until-empty", "--timeout", "1h").code == 0
        accepted, executed = read_accepted([place]), read_executed([place])
        assert [each.message for each in accepted] == [f"m-{number}" for number in range(len(accepted))]
        assert {len([*call]) for _, call in groupby(accepted, key=lambda each: each.at)} == {3}
        assert [(each.message, each.since) for each in executed] == [(each.message, each.since) for each in accepted]
    finally:
        place.close()


def test_kinds_come_in_turn_until_so_many_messages_are_acknowledged() -> None:
    trial, place, turns = Trial(["kill", "cut"], replicas=None), Place(), list[str]()
    trial.places.append(place)
    try:
        with (place.directory / ACCEPTED).open("w") as accepted:
            for kind in trial.in_turn(3):
                turns.append(kind)
                print("m", 0, 0, 0, file=accepted, flush=True)
        assert turns == ["kill", "cut", "kill"]
    finally:
        trial.close(keep=False)
