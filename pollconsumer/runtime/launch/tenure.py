"""A heartbeat's work: renews the lease of a launch, and releases it if the launch dies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from pollconsumer.core.errors import LeaseLost, PollConsumerError, StoreRefused, StoreUnreachable, shown
from pollconsumer.core.notation.text import printable
from pollconsumer.core.window import StopReason
from pollconsumer.runtime.launch.launch_end import LaunchEnd, while_what
from pollconsumer.runtime.launch.shared_memory.flight import Flight
from pollconsumer.runtime.launch.shared_memory.launch_progress import (
    EMPTIED,
    LOST,
    ROLLED_BACK,
    Identity,
    LaunchProgress,
)
from pollconsumer.runtime.launch.sightings import LOOK_EVERY, Sighting, Sightings
from pollconsumer.store.client.patience import Clocks
from pollconsumer.store.leases import RENEW_EVERY, TRUSTED_FOR, Leases
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.records.reservations import Claim, DeadLetter
from pollconsumer.store.safety.rollback import went_back

Tell = Callable[[str], None]

RETRY_EVERY = 1.0
"""Seconds between retries while the server does not answer."""

WITHOUT_WATCHDOG_AFTER = 1.0
"""Seconds after its hard end until a launch is ended that did not end itself."""
RELEASE_BUDGET = 2.0
"""Seconds for releasing the lease of a launch that died at its hard end."""


class Watched(Protocol):
    """A launch, as its heartbeat sees it."""

    def ends_within(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for its end. Returns whether it has ended."""

    def is_suspended(self) -> bool: ...

    def call(self) -> None:
        """Have the launch interrupt a handler whose limit has passed."""

    def kill(self) -> None:
        """End the launch, whose watchdog could not: a handler holds the GIL."""


class Tenure(NamedTuple):
    """A lease and its holder. ``waited``: seconds from the launch's start until it had it. On the boot clock: when it
    was ``asked`` for, and ``since`` when it is held. ``stop_before`` on the monotonic clock, and ``grace``: of the
    launch's end."""

    identity: Identity
    held: Claim
    waited: float
    asked: float
    since: float
    stop_before: float
    grace: float

    def entry(
        self,
        progress: LaunchProgress,
        now: float,
        leaving: float | None = None,
        in_hand: Sequence[Sighting] = (),
        *,
        beyond: bool = False,
    ) -> str:
        """The ledger's entry as of ``now``, on the boot clock. ``leaving``: see `Identity.entry`. ``in_hand``: messages
        that take long. ``beyond``: the launch's window is over."""
        held, since = self.held, self.since

        def at(instant: float) -> int:
            return held.at + int((instant - since) * 1000)

        shown = [(handler, queue, name, at(began), at(until)) for handler, queue, name, began, until in in_hand]
        return self.identity.entry(held, self.waited, now - since, progress, leaving, shown, beyond=beyond)


def keep(launch: Watched, progress: LaunchProgress, leases: Leases, tenure: Tenure, clocks: Clocks, tell: Tell) -> None:
    """Renew until the launch has ended, which may be a while after it has lost its lease."""
    identity, pause, lost = tenure.identity, 0.0, False
    sightings = Sightings(progress.flight, tenure.stop_before)
    end = LaunchEnd(progress.flight, tenure.stop_before, tenure.grace)
    while not _ends_within(launch, pause, sightings, end, clocks):
        asked, pause = clocks.boot_time(), RETRY_EVERY
        # A suspended launch must lose its lease as a frozen machine would. A process that exists beyond the hard end is
        # another program, by which a handler has replaced the launch (exec).
        if lost or launch.is_suspended() or clocks.monotonic() > end.hard_end() + RELEASE_BUDGET:
            continue
        entry = tenure.entry(progress, asked, in_hand=sightings.standing, beyond=sightings.beyond)
        with suppress(PollConsumerError):
            held = leases.renew(tenure.held, entry)
            if leases.rollback is not None and held is not None:
                tell(f"warning: {went_back(*leases.rollback)}")
                lost = leases.refuse_rollback
            if lost:
                progress.trust_until(ROLLED_BACK)
            elif held:
                progress.trust_until(asked + TRUSTED_FOR)
                pause = RENEW_EVERY
                if identity.queues and clocks.monotonic() >= tenure.stop_before:
                    leases.prolong_presence(identity.queues)
            else:
                progress.trust_until(EMPTIED if held is None else LOST)
                lost = True


def _ends_within(launch: Watched, seconds: float, sightings: Sightings, end: LaunchEnd, clocks: Clocks) -> bool:
    """Wait as `Watched.ends_within` does; return early, too, once a message has been in hand for a while: the store is
    to be told. Meanwhile see to it that limits are kept: the launch may hold the GIL."""
    until = clocks.monotonic() + seconds
    while True:
        if launch.ends_within(max(0.0, min(until - clocks.monotonic(), LOOK_EVERY))):
            return True
        if sightings.any_overdue(clocks.monotonic()):
            launch.call()
        if clocks.monotonic() > end.hard_end() + WITHOUT_WATCHDOG_AFTER and not launch.is_suspended():
            launch.kill()
        if sightings.look(clocks.boot_time(), clocks.monotonic()) or clocks.monotonic() >= until:
            return False


def give_back(
    progress: LaunchProgress,
    leases: Leases,
    store: RedisStore,
    tenure: Tenure,
    clocks: Clocks,
    tell: Tell,
    leave_output: Callable[[], None] = lambda: None,
) -> None:
    """The launch died. Release its reservations and its lease, and close its ledger entry, even if it has lost the
    lease. ``leave_output`` is called before a wait for the store: whoever reads the output must not wait as well."""
    ended, end = clocks.boot_time(), LaunchEnd(progress.flight, tenure.stop_before, tenure.grace)
    if progress.ended()[0] is None:
        struck = clocks.monotonic() >= end.hard_end()
        died = f"launch died: {while_what(progress.flight.left_behind())}"
        tell(f"error: {end.what_resisted(clocks.monotonic()) if struck else died}; the next launch goes on")
        # The C watchdog cannot record that it struck; the time shows it.
        progress.end(*((StopReason.WATCHDOG, 1) if struck else (StopReason.DIED, -1)))
    resisted = end.resisted(clocks.monotonic()) if progress.ended()[0] is StopReason.WATCHDOG else {}
    entry = tenure.entry(progress, ended)
    until = max(end.hard_end(), clocks.monotonic() + RELEASE_BUDGET)
    while clocks.monotonic() < until:
        try:
            _give_up(progress.flight, store, tenure, tell, resisted)
            leases.release(tenure.held, entry)
            return
        except StoreUnreachable:
            leave_output()
            clocks.sleep(RETRY_EVERY)
        except PollConsumerError:  # no retry can help: the lease lapses by itself
            return


def _give_up(
    flight: Flight, store: RedisStore, tenure: Tenure, tell: Tell, resisted: Mapping[tuple[str, bytes], str]
) -> None:
    """Release what a dead launch had reserved. Messages in hand are charged an attempt and a death; those that had
    ended but were not settled, an attempt; those that were merely reserved, neither. ``resisted``: what is said of
    messages for which the launch was ended."""

    def print_death(dead_letter: DeadLetter) -> None:
        message, problem = dead_letter
        what = f"{shown(message.name)} ({message.handler}), attempt {message.attempt}: {problem}"
        tell(f"warning: dead letter: {printable(what)}")

    queues, left_behind = tenure.identity.queues, flight.left_behind()
    lost = store.lost(queues)  # the next launch recovers these
    for queue in [each for each in queues if each not in lost]:
        here = [message for message in left_behind if message.queue == queue]
        in_hand = [message.id for message in here if not message.ended and not message.last]
        ended = [message.id for message in here if message.ended and not message.last]
        spent = [message.id for message in here if message.last]
        # Another launch recovers the queue, or this one had skipped it or not announced itself there yet.
        with suppress(LeaseLost, StoreRefused):
            known = {name: why for (of, name), why in resisted.items() if of == queue}
            store.give_up(tenure.held, queue, in_hand, ended, spent, on_dead_letter=print_death, known=known)
