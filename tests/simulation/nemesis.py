"""What goes wrong: one fault at a time, at random moments, until it is told to stop."""

from __future__ import annotations

import signal
from functools import partial
from typing import TYPE_CHECKING

from pollconsumer.store.keyspace import Keys
from tests.simulation.installation import NAMESPACE
from tests.simulation.losing import Unwritten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from pollconsumer.store.client.wire import Wire
    from tests.simulation.hosts.process import Machine, Process
    from tests.simulation.hosts.world import Actor
    from tests.simulation.installation import Installation


RETRY = 0.05
"""Maximum seconds after which a fault without a victim is tried again."""


class Nemesis:
    """``faults``, by name, at random instants in ``seconds`` from now on."""

    def __init__(
        self,
        installation: Installation,
        wire: Wire,
        faults: Iterable[str],
        seconds: float,
        look: Callable[[], None],
    ) -> None:
        """``look`` is called after each fault. ``wire`` is not simulated."""
        self.installation, self.world, self._wire, self._look = installation, installation.world, wire, look
        self._until = self.world.now + seconds
        for name in faults:
            chance = self.world.stream(name)
            self.world.after(chance.uniform(0.0, seconds), partial(self._strike, name, chance))

    def _strike(self, name: str, chance: Random) -> None:
        acts: list[Callable[[], str | None]] = [
            self._kill_launch,
            self._kill_heartbeat,
            self._kill_both,
            self._kill_child,
            self._suspend_child,
            self._suspend,
            self._suspend_heartbeat,
            self._suspend_machine,
            self._sleep_machine,
            self._ask_to_stop,
            self._bad_network,
            self._late_network,
            self._restart_server,
            self._lose_last_second,
            self._forget_scripts,
            self._refuse,
            self._set_clock,
            self._set_servers_clock,
        ]
        self._try(name, chance, chance.choice(acts))

    def _try(self, name: str, chance: Random, act: Callable[[], str | None]) -> None:
        """Until it has a victim: a child may live for milliseconds."""
        self.chance = chance
        what = act()
        if what is None:
            if self.world.now < self._until:
                self.world.after(chance.uniform(0.0, RETRY), partial(self._try, name, chance, act))
        else:
            self.installation.history.faults.append(what)
            self.world.tell(f"{name}: {what}")
            self._look()

    def _victim(self) -> Process | None:
        alive = [process for process in self.installation.processes if process.alive]
        return self.chance.choice(alive) if alive else None

    def _kill_launch(self) -> str | None:
        if (victim := self._victim()) is None:
            return None
        victim.end()
        return f"{victim.name} killed"

    def _kill_heartbeat(self) -> str | None:
        victim = self._victim()
        if victim is None or victim.heartbeat is None:
            return None
        victim.heartbeat.stop()
        return f"heartbeat of {victim.name} killed"

    def _kill_both(self) -> str | None:
        if (victim := self._victim()) is None:
            return None
        if victim.heartbeat is not None:
            victim.heartbeat.stop()
        victim.end()
        return f"{victim.name} and its heartbeat killed"

    def _child(self) -> Actor | None:
        """The process of an isolated handler."""
        alive = [each for process in self.installation.processes for each in process.children if each.alive]
        return self.chance.choice(alive) if alive else None

    def _kill_child(self) -> str | None:
        if (victim := self._child()) is None:
            return None
        victim.kill()
        return f"{victim.name} killed"

    def _suspend_child(self) -> str | None:
        if (victim := self._child()) is None or victim.suspended:
            return None
        victim.suspend()
        seconds = self.chance.choice([0.5, 5.0, 30.0])
        self._resume_after(seconds, victim)
        return f"{victim.name} suspended for {seconds} s"

    def _suspend(self) -> str | None:
        if (victim := self._victim()) is None:
            return None
        seconds = self.chance.choice([0.5, 5.0, 30.0, 100.0])
        for each in (victim.actor, *victim.threads):
            each.suspend()
            self._resume_after(seconds, each)
        return f"{victim.name} suspended for {seconds} s"

    def _suspend_heartbeat(self) -> str | None:
        victim = self._victim()
        if victim is None or victim.heartbeat is None:
            return None
        victim.heartbeat.actor.suspend()
        seconds = self.chance.choice([0.5, 5.0, 30.0, 100.0])
        self._resume_after(seconds, victim.heartbeat.actor)
        return f"heartbeat of {victim.name} suspended for {seconds} s"

    def _suspend_machine(self) -> str | None:
        """All its processes stop, and none is started there until it goes on."""
        if (machine := self._without_machine(seconds := self.chance.choice([0.5, 5.0, 30.0, 100.0]))) is None:
            return None
        for each in machine.actors():
            each.suspend()
            self._resume_after(seconds, each)
        return f"machine {machine.name} suspended for {seconds} s"

    def _sleep_machine(self) -> str | None:
        """Its monotonic clock and its timers stand still, too."""
        if (machine := self._without_machine(seconds := self.chance.choice([0.5, 5.0, 30.0, 100.0]))) is None:
            return None
        machine.sleep_for(seconds)
        self.world.after(seconds, self._note_resumption)
        return f"machine {machine.name} asleep for {seconds} s"

    def _without_machine(self, seconds: float) -> Machine | None:
        """One that is to be stopped for so long: nothing is started there."""
        machines = self.installation.machines
        if len(machines) == 1:
            return None
        machine = machines.pop(self.chance.randrange(len(machines)))
        self.world.after(seconds, lambda: machines.append(machine))
        return machine

    def _resume_after(self, seconds: float, actor: Actor) -> None:
        def resume() -> None:
            self._note_resumption()
            actor.resume()

        self.world.after(seconds, resume)

    def _note_resumption(self) -> None:
        self.installation.history.resumed.append(self.installation.now_us())

    def _ask_to_stop(self) -> str | None:
        if (victim := self._victim()) is None:
            return None
        victim.signal(signal.SIGTERM)
        return f"{victim.name} asked to stop"

    def _bad_network(self) -> str:
        network, seconds = self.installation.network, self.chance.choice([0.5, 3.0, 20.0])
        network.request_lost, network.reply_lost = self.chance.choice([(0.2, 0.2), (0.0, 0.5), (0.9, 0.0)])

        def mend() -> None:
            network.request_lost = network.reply_lost = 0.0

        self.world.after(seconds, mend)
        return f"network loses for {seconds} s"

    def _late_network(self) -> str:
        network, seconds = self.installation.network, self.chance.choice([0.5, 3.0, 20.0])
        network.late = self.chance.choice([0.05, 0.3])

        def mend() -> None:
            network.late = 0.0

        self.world.after(seconds, mend)
        return f"network is late for {seconds} s"

    def _restart_server(self) -> str:
        server, seconds = self.installation.server, self.chance.choice([0.01, 1.0, 15.0])
        server.stop()
        self.world.after(seconds, server.start)
        return f"server gone for {seconds} s"

    def _lose_last_second(self) -> str | None:
        server, lost = self.installation.server, self.chance.uniform(0.0, 1.0)
        seconds = self.chance.choice([0.01, 1.0, 15.0])
        # A queue that has lost its first announcement is as one that was emptied: launches end with 78, as promised.
        queues = self.installation.queues
        if not server.up or not all(server.store.holds(Keys(NAMESPACE).queue(queue, "announced")) for queue in queues):
            return None
        unwritten = Unwritten(self.installation, self._wire)

        def die() -> None:
            if server.up:
                unwritten.lose()
                self.world.tell(f"server killed: what it was told in the last {lost:.2f} s is lost")
                self._look()
                self.world.after(seconds, server.start)

        self.world.after(lost, die)
        return f"server to be gone for {seconds} s, without its last second"

    def _forget_scripts(self) -> str:
        self.installation.server.forget_scripts()
        return "scripts forgotten"

    def _set_clock(self) -> str | None:
        """Forward or backward; the launcher goes by another clock."""
        if not self.installation.machines:
            return None
        machine, seconds = (
            self.chance.choice(self.installation.machines),
            self.chance.choice([1.0, 30.0, 3600.0, 86400.0]),
        )
        machine.ahead += seconds if self.chance.random() < 0.5 else -seconds
        return f"clock of {machine.name} set wrong, by {machine.ahead} s"

    def _set_servers_clock(self) -> str:
        """A lease that lapses by it is as one that somebody broke."""
        by = self.chance.choice([-60.0, -20.0, -2.0, 2.0, 20.0, 300.0])
        self.installation.history.clock_steps.append((self.installation.now_us(), int(by * 1_000_000)))
        self.installation.server.set_clock(by)
        self.installation.broken_at = self.world.now
        return f"the server's clock set by {by} s"

    def _refuse(self) -> str:
        server, seconds = self.installation.server, self.chance.choice([0.05, 2.0])
        server.refusing = self.chance.choice(["OOM command not allowed", "READONLY You can't write against a replica"])

        def mend() -> None:
            server.refusing = None

        self.world.after(seconds, mend)
        return f"server refuses for {seconds} s: {server.refusing[:8]}"
