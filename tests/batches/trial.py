"""Batches that are produced and handled while processes and servers are killed, and what is wrong with them then."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from pollconsumer import NotFound, PollConsumer, StoreUnreachable
from tests.batches.handlers import INNER, QUEUES
from tests.trials.launches import Launches, heartbeats
from tests.trials.place import Place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pollconsumer.store.reading.batch_reader import BatchStatus
    from tests.batches.stores import Store
    from tests.trials.place import Command

LAUNCHES = 2
AT_ONCE = 5
"""Batches that a producer makes, one after the other."""
MOST_OPEN = 20
"""Batches that have not ended, before others are made."""
WITHIN = 1200.0
"""Seconds for all batches to end after the last one is produced."""
CALLED = {"ended": {"then", "failed", "ended"}, "abandoned": {"failed", "ended"}}
"""Which callbacks a batch has called at the end, by how it is."""
SHUT = ("ended", "abandoned")
"""How a batch is that calls back no more, unless its dead members are redriven."""


class Trial:
    """Batches of ``members`` each, more of them until the time is over. ``victims``: what is killed."""

    def __init__(self, store: Store, members: int, kill_every: float, slots: int, victims: Sequence[str]) -> None:
        self._store, self._members = store, members
        self.place = Place(store.url, quick_leases=False)
        self._kill_every, self._victims = kill_every, victims
        queues = ", ".join(f'"{queue}"' for queue in QUEUES)
        kept = "".join(f'[queues.{queue}]\nkeep_completed = "1d"\n' for queue in QUEUES)
        self.place.configure(
            'state = "none"\nhandlers = ["tests.batches.handlers"]\n[consumer]\nestimated_duration = "10ms"\n'
            f'queues = [{queues}]\ntimeout = "20s"\nconcurrency = {slots}\n{kept}'
        )
        self._app = PollConsumer(store=store.url, config=self.place.directory / "config.toml")
        self._producer: Command | None = None
        self._produced_at_last: list[str] = []
        self._lasting = set[str]()
        """Batches that have not called back for the last time, as far as was seen."""
        self._interrupted, self._left = set[str](), set[str]()
        """Batches whose producer was killed; and those that no other went on with."""
        self.batches = list[str]()
        self.kills, self.exits, self.states = Counter[str](), Counter[int](), Counter[str]()
        self.redriven = 0

    def run(self, seconds: float) -> list[str]:
        """Go on for so long, then until all have ended. Returns what is wrong."""
        launches = Launches(self.place, [["run", "--instances", str(LAUNCHES)]] * LAUNCHES)
        began = killed = time.monotonic()
        while not self._is_over() or time.monotonic() < began + seconds:
            now = time.monotonic()
            if now > began + seconds + WITHIN:
                break
            self._keep_producing(starts=now < began + seconds)
            if began + seconds > now > killed + self._kill_every:
                killed = now
                self._kill(launches)
            self._redrive()
            time.sleep(0.2)
        launches.stop()
        self.exits = launches.exits()
        self.place.run("run", "--until-empty", within=WITHIN)
        return [*self._judged()]

    def _keep_producing(self, *, starts: bool) -> None:
        if self._producer is not None and self._producer.is_running():
            return
        if self._producer is not None and self._producer.process.returncode:
            self._interrupted.update(self._produced_at_last)  # the next one produces the same batches
        else:
            if not starts or len(self._lasting) >= MOST_OPEN:
                return
            made = len(self.batches)
            self._produced_at_last = [f"b{number}" for number in range(made, made + AT_ONCE)]
            self.batches += self._produced_at_last
            self._lasting.update(self._produced_at_last)
        words = ("-m", "tests.batches.producer", str(self._members), *self._produced_at_last)
        self._producer = self.place.start_python(*words)

    def _kill(self, launches: Launches) -> None:
        """Kill one of the victims that is there."""
        for victim in random.sample(self._victims, len(self._victims)):
            if victim == "server":
                self._store.kill()
            elif pids := self._pids_of(victim, launches):
                os.kill(random.choice(pids), signal.SIGKILL)
            else:
                continue
            self.kills[victim] += 1
            break
        if victim == "producer" and random.random() < 0.5:
            self._leave_batches()

    def _pids_of(self, victim: str, launches: Launches) -> list[int]:
        if victim == "producer":
            return [self._producer.process.pid] if self._producer is not None and self._producer.is_running() else []
        running = launches.running()
        if victim == "launch":
            return [launch.process.pid for launch in running]
        return [pid for launch in running for pid in heartbeats(launch)]

    def close(self) -> None:
        self.place.close()

    def _leave_batches(self) -> None:
        """Of the producer that was killed: nobody goes on with its batches."""
        self._left.update(self._produced_at_last)
        self._interrupted.update(self._produced_at_last)
        self._producer = None

    def _redrive(self) -> None:
        for batch in random.sample([*self._lasting], min(2, len(self._lasting))):
            try:
                self.redriven += self._app.batches.get(batch).redrive()
            except (NotFound, StoreUnreachable):
                continue

    def _is_over(self) -> bool:
        """Whether every batch has called back for the last time, and no producer is to go on."""
        self._lasting = {batch for batch in self._lasting if not self._has_called_back(batch)}
        return not self._lasting and (self._producer is None or self._producer.process.poll() == 0)

    def _has_called_back(self, batch: str) -> bool:
        try:
            found = self._app.batches.get(batch).state
            if found == "abandoned" and self._status_of(self._inner(batch)) == "open":
                return False
        except NotFound:
            return batch in self._left
        except StoreUnreachable:
            return False
        with suppress(NotFound, StoreUnreachable):
            return self._app.message(f"{batch}:{'ended' if found == 'abandoned' else 'then'}").state == "completed"
        return False

    def _judged(self) -> Iterator[str]:
        written = self.place.directory / "notes"
        notes = Counter(written.read_text().splitlines() if written.exists() else ())
        calls = Counter(" ".join(line.split()[:2]) for line in notes.elements())
        yield from (f"{call} was called {times} times" for call, times in calls.items() if times > 1)
        called = {call.split()[0] for call in calls}
        for batch in self.batches:
            inner, outer = (self._found(name) for name in (self._inner(batch), batch))
            for name, status in ((batch, outer), (self._inner(batch), inner)):
                names = {each for each in CALLED["ended"] if f"{name}:{each}" in called}
                if status is not None:
                    yield from self._wrong_with(status, names)
                elif batch not in self._left or names:
                    yield f"{name} is not there, and has called {names}"
            self.states["never opened" if outer is None else outer.state] += 1
            if outer is not None:
                yield from self._wrong_with_outer(outer, inner)
            grown = self._members + self._members // 10 * 3
            for name, found in ((batch, f" {grown + 1} {grown + 1} {grown}"), (self._inner(batch), f" {INNER}" * 3)):
                if f"{name}:then" in called and not any(
                    each.startswith(f"{name}:then ") and each.endswith(found) for each in notes
                ):
                    yield f"{name}:then found other members"

    def _wrong_with(self, batch: BatchStatus, called: set[str]) -> Iterator[str]:
        """What is wrong with a batch itself, whether it is a member of another or not."""
        expected, missed = CALLED.get(batch.state), {"then"} if batch.completed < batch.total else set[str]()
        if expected is None or called != expected - missed:
            yield f"{batch.id} is {batch.state}, and has called {called}"
        if batch.state == "abandoned" and batch.id.partition(".")[0] not in self._interrupted:
            yield f"{batch.id} is abandoned, and its producer was not killed"

    def _wrong_with_outer(self, batch: BatchStatus, inner: BatchStatus | None) -> Iterator[str]:
        """What is wrong with a batch and the one within it. Its end comes after that one's, which counts once."""
        grown = self._members + self._members // 10 * 3 + 1
        if batch.state == "ended" and (batch.total, batch.completed) != (grown, grown):
            yield f"{batch.id} has {batch.completed} of {batch.total} members completed, not {grown}"
        if batch.state == "ended" and (inner is None or inner.state != "ended" or inner.completed != INNER):
            yield f"{batch.id} has ended, and the batch within it is {inner}"
        if inner is not None and None not in (batch.ended_at, inner.ended_at) and batch.state == "ended":
            assert batch.ended_at is not None
            assert inner.ended_at is not None
            if batch.ended_at < inner.ended_at:
                yield f"{batch.id} has ended at {batch.ended_at}, before the batch within it, {inner.ended_at}"
        counted = {"completed": batch.completed, "dead": batch.dead}
        held = Counter(str(each.listed.state) for each in self._app.batches.get(batch.id).members() if each.listed)
        if inner is not None and inner.state in SHUT:
            held["completed" if inner.completed == inner.total and inner.state == "ended" else "dead"] += 1
        if +Counter(counted) != held:
            yield f"{batch.id} has counted {counted}, its queues and the batch within it have {dict(held)}"

    def _inner(self, batch: str) -> str:
        """The id of the batch that is the last member of ``batch``."""
        return f"{batch}.{self._members}:batch"

    def _found(self, name: str) -> BatchStatus | None:
        with suppress(NotFound):
            return self._app.batches.get(name).status()
        return None

    def _status_of(self, name: str) -> str | None:
        found = self._found(name)
        return None if found is None else found.state
