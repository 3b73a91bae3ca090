"""``python -m tests.faults.volume --messages 1000000``: many messages, and a kill each one to three seconds.

The server keeps every write before it answers. What is killed: the launch, its heartbeat, both, the mover, and, one
time in twelve, the server. At the end it drains, says what was lost and what was repeated, and ends with 1 if a
message was lost, became a dead letter, or was handled twice as the same attempt.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter

from pollconsumer.store.reading.inspector import Inspector
from tests.faults.about_launches import exit_codes_are_those_of_the_contract, nothing_is_printed_but_warnings
from tests.faults.history import History
from tests.faults.installation import NAMESPACE, Installation
from tests.faults.nemesis import Nemesis
from tests.faults.platform import Platform
from tests.faults.recording import RECORD

CONFIGURATION = """
handlers = ["volume_handlers"]

[consumer]
timeout = "20s"
grace = "2s"
min_margin = "200ms"
idle_time = "500ms"
estimated_duration = "1ms"

[mover]
timeout = "20s"
grace = "2s"
"""
PERIOD = 3.0
KILLS = ["kill launch"] * 6 + ["kill heartbeat"] * 2 + ["kill launch and heartbeat"] * 2 + ["kill mover", "kill server"]
LONGEST = 3600.0


class Volume:
    def __init__(self, messages: int, seed: int) -> None:
        self._messages, self._chance = messages, random.Random(seed)
        self.installation = Installation(slow_loading=False)
        self.installation.configure(CONFIGURATION, "volume_handlers.py", of=__file__)
        self._wire = self.installation.server.wire()
        self._began = time.monotonic()
        self.faults: list[str] = []

    def run(self) -> list[str]:
        """What is wrong."""
        producer = self.installation.start_python("-m", "tests.faults.volume_producer", str(self._messages))
        platform = Platform(self.installation, PERIOD, [[]])
        nemesis = Nemesis(self._chance.randrange(1 << 30), self.installation, platform)
        try:
            while (producer.is_running() or self._left()) and time.monotonic() - self._began < LONGEST:
                time.sleep(self._chance.uniform(1, 3))
                nemesis.strike(self._chance.choice(KILLS))
                if "server" in nemesis.done[-1]:
                    self.installation.server.await_ready()
        finally:
            platform.stop()
        self.faults = nemesis.done
        for launch in platform.launches:
            if launch.is_running():
                launch.process.terminate()
            launch.process.wait()
        while self._left() and time.monotonic() - self._began < LONGEST:
            self.installation.run("-q", "move", "--timeout", "2s")
            self.installation.run("-q", "run", "--until-empty", within=LONGEST)
        return list(self._judge())

    def _left(self) -> int:
        (queue,) = Inspector(self._wire, NAMESPACE).overview().queues or (None,)
        return queue.ready + queue.reserved + queue.scheduled if queue else 0

    def _judge(self) -> list[str]:
        content = (self.installation.directory / "calls").read_bytes()
        calls = Counter[tuple[int, int]]()
        for n, attempt, _ in RECORD.iter_unpack(content[: len(content) // RECORD.size * RECORD.size]):
            calls[n, attempt] += 1
        handled = Counter(n for n, _ in calls)
        lost = [n for n in range(self._messages) if n not in handled]
        same = [call for call, times in calls.items() if times > 1]
        counts = Inspector(self._wire, NAMESPACE).overview().queues[0]
        minutes = (time.monotonic() - self._began) / 60
        repeated = calls.total() - len(handled)
        print(f"{self._messages} messages in {minutes:.1f} minutes: {len(lost)} lost, {repeated} repeated,")
        print(f"{len(same)} of them as the same attempt; {len(self.faults)} faults: {dict(Counter(self.faults))}")
        wrong = [f"lost: {lost[:10]} and others, {len(lost)}"] if lost else []
        wrong += [f"the same attempt twice: {same[:10]} and others, {len(same)}"] if same else []
        wrong += [f"dead letters: {counts.dead}"] if counts.dead else []
        wrong += [f"left: {self._left()}"] if self._left() else []
        history = History(commands=[command.ran() for command in self.installation.commands])
        return [*wrong, *exit_codes_are_those_of_the_contract(history), *nothing_is_printed_but_warnings(history)]

    def close(self, *, keep: bool) -> None:
        self._wire.close()
        self.installation.close(keep=keep)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    volume = Volume(given.messages, given.seed)
    wrong = ["the run itself ended with an error"]
    try:
        wrong = volume.run()
    finally:
        volume.close(keep=bool(wrong))
    for line in wrong:
        print(line)
    if wrong:
        print(f"kept in {volume.installation.directory}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
