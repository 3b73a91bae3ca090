"""A simulated installation: a server, machines, and the processes that a launcher, producers and people start there."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pollconsumer import store
from pollconsumer.core.choices import HandOff, LauncherRule
from pollconsumer.core.durations import MarginRule
from pollconsumer.core.errors import PollConsumerError
from pollconsumer.core.launcher import UNKNOWN, given_launcher
from pollconsumer.core.retry import Backoff, Fatal, Skip, Yield
from pollconsumer.runtime.consumer import consume
from pollconsumer.runtime.handling.executors import Executor, Handled
from pollconsumer.runtime.handling.handler import Handler, Hooks, with_hooks
from pollconsumer.runtime.launch.launch import LaunchPlan, run_launch
from pollconsumer.runtime.mover import Mover, MoverOptions
from pollconsumer.runtime.session.pace import ConsumerOptions
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.leases import Group, Leases
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.records import rows
from pollconsumer.store.records.reservations import Reservation
from pollconsumer.store.scripts import Scripts
from tests.as_set import rules_as_set
from tests.faults.drawing import SKIP
from tests.faults.handlers_known import AFTER_END, HOOKED, LATEST, SIGNAL
from tests.faults.history import Execution, History, Ran
from tests.faults.recording import digest
from tests.forecast.consumer_rules import Rules
from tests.forecast.distributions import draw
from tests.forecast.launchers import Outage, Platform
from tests.simulation.batch_handlers import behave, end_member, go_on, look_back, start_batch
from tests.simulation.bulk_handlers import SHORTEST, bulk_handler
from tests.simulation.hosts.children import around
from tests.simulation.hosts.network import Link, Network
from tests.simulation.hosts.process import Machine, Process
from tests.simulation.hosts.server import BEGINS, SimulatedServer
from tests.simulation.hosts.slots import Slots
from tests.simulation.hosts.world import World
from tests.simulation.launching import Host, Launching
from tests.simulation.platforms import PLATFORMS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from pollconsumer.core.events import Event
    from pollconsumer.core.recurrence import Recurrence
    from pollconsumer.core.window import StopReason
    from pollconsumer.runtime.handling.context import Context, LaunchContext
    from pollconsumer.runtime.handling.executors import Attempt
    from pollconsumer.runtime.launch.board import Flight
    from pollconsumer.runtime.launch.launch import Launch
    from pollconsumer.store.client.patience import Patience

NAMESPACE = "simulated"
QUEUES = ("default", "second")
RULES = rules_as_set(timeout=55.0, grace=5.0, idle_time=4.0, estimated_duration=1.0, tolerance_factor=2.0)
MAX_ATTEMPTS = 4
LONGEST_SETTLING = int((RULES.timeout + RULES.grace) * 1000)
"""Milliseconds: a launch settles until its hard end."""
WAITS = 20.0
"""Seconds for which the handler with steps waits for a signal."""
SCRIPTS = Scripts(shebang=False)
SCRIPT_NAMES = {SCRIPTS[path.stem].sha: path.stem for path in (Path(store.__file__).parent / "lua").glob("*.lua")}


class Opener:
    """Connections of one process."""

    namespace = NAMESPACE

    def __init__(self, server: SimulatedServer, process: Process) -> None:
        self._server, self._process = server, process

    def wire(self, patience: Callable[[], Patience] | None = None) -> Wire:
        patience = patience or (lambda: Budget(5.0, self._process))
        return Wire("redis://simulated", patience, connect=lambda: Link(self._server, self._process), scripts=SCRIPTS)

    bare_wire = launch_wire = wire

    rollback = SimpleNamespace(note=lambda _: None)
    """There is no later process of the same user."""

    def for_heartbeat(self, patience: Callable[[], Patience]) -> tuple[Leases, RedisStore, Wire]:
        wire = self.launch_wire(patience)
        return Leases(wire, NAMESPACE), RedisStore(wire, NAMESPACE, clocks=self._process), self.bare_wire(patience)


class OneSlot(Executor):
    """Handles in the launch's own actor, as ``Executor`` does in its thread."""

    slots = 1
    busy = 0

    def __init__(self, process: Process) -> None:
        self._process = process
        self._finished: list[Handled] = []

    def start(self, attempt: Attempt) -> None:
        started = self._process.monotonic()
        outcome = attempt.handle()
        self._finished.append(Handled(attempt, started, self._process.monotonic(), outcome))

    def finished(self) -> list[Handled]:
        finished, self._finished = self._finished, []
        return finished

    def stop(self, reservation: Reservation, seconds: float, in_flight: Callable[[], bool]) -> None:
        """Nobody asks for it."""

    def lock(self) -> AbstractContextManager[object]:
        return nullcontext()

    def wait(self, seconds: float, descriptor: int | None = None) -> None:  # noqa: ARG002  `Executor` has it
        raise AssertionError("nothing runs beside the loop")

    def close(self) -> None: ...


class Installation:
    """``rules`` and ``queues`` are what its configuration says."""

    opener = Opener
    recurrences: Sequence[Recurrence] = ()
    instances = 1
    """Of its configuration, both."""

    def __init__(
        self,
        seed: int,
        platform: Platform = PLATFORMS["debian-cron"],
        rules: Rules = RULES,
        queues: tuple[str, ...] = QUEUES,
    ) -> None:
        self.world = World(seed)
        self.network = Network()
        self.server = SimulatedServer(self.world, self.network, SCRIPT_NAMES)
        chance = self.world.chance
        self.machines = [
            Machine(self.world, name, begin=chance.uniform(100, 1e6), rate=1 + chance.uniform(-1e-4, 1e-4))
            for name in ("ant", "bee")
        ]
        self.host, self.platform, self.rules, self.queues = Host(self.world), platform, rules, queues
        self.mover_handoff: HandOff | None = None
        """The consumer's if None."""
        self.history = History(one_at_a_time=rules.slots == 1, settled_within=LONGEST_SETTLING)
        self.processes: list[Process] = []
        self.working: list[tuple[Process, Launch]] = []
        """Launches that hold a lease, and those that were killed while they did."""
        self.broken_at = -1e9
        """When somebody broke a lease the last time."""
        self._flights: dict[Process, Flight] = {}
        """The last one of each message that a launch began to handle, for handlers that are told nothing of it."""

    # Launches

    def launch(self, role: str, machine: Machine | None = None) -> Process:
        name = f"{role} {len(self.processes) + 1}"
        machine = machine or self.world.stream(f"machine of {name}").choice(self.machines)
        main = self._consume if role == "run" else self._move
        process = Process(machine, name, main)
        self.processes.append(process)
        return process

    def launch_until(self, instant: float, role: str, outages: Sequence[Outage] = ()) -> Launching:
        return Launching(self.world, self.host, self.platform, lambda: self.launch(role), instant, outages)

    def _plan(self, process: Process, handoff: HandOff) -> LaunchPlan:
        wrong, found = process.machine.ahead, self.platform.found
        ahead = self.host.next_launches(self.platform.schedule, wrong)
        return LaunchPlan(
            self.rules.timeout,
            self.rules.grace,
            handoff,
            ahead,
            launched_ago=self.host.launched_ago(self.platform.schedule, ahead, wrong),
            launcher=given_launcher(self.rules.launcher, found),
            observes=found == UNKNOWN and self.rules.launcher is LauncherRule.AUTO,
            min_margin=self.rules.min_margin,
        )

    def _consume(self, process: Process) -> int:
        process.sleep(draw(self.platform.start_up, process.stream))
        group = Group("consumer", self.served_by(process), self.instances)
        plan = self._plan(process, self.rules.handoff)
        return self._run(process, plan, group, lambda launch: self.work(launch, process))

    def served_by(self, process: Process) -> tuple[str, ...]:  # noqa: ARG002  some have lines for queues apart
        return self.queues

    def told(self, process: Process, event: Event) -> None:
        """Called with what a launch reports."""

    def work(self, launch: Launch, process: Process) -> StopReason:
        """What a consumer does while it holds the lease."""
        rules = self.rules
        options = ConsumerOptions(
            self.served_by(process),
            rules.idle_time,
            MarginRule(rules.estimated_duration, rules.tolerance_factor, launch.min_margin, rules.overrun_target),
            instances=self.instances,
        )
        executor = OneSlot(process) if rules.slots == 1 else Slots(process, rules.slots)
        self._flights[process] = launch.progress.flight
        return consume(launch, options, around(process, self.handlers(process)), self.recurrences, executor)

    def _move(self, process: Process) -> int:
        process.sleep(draw(self.platform.start_up, process.stream))

        def move_for(launch: Launch) -> StopReason:
            return Mover(launch, MoverOptions(idle_time=1.0, page_size=100)).run()

        plan = self._plan(process, self.mover_handoff or self.rules.handoff)
        return self._run(process, plan, Group("mover", (), 1), move_for)

    def _run(self, process: Process, plan: LaunchPlan, group: Group, work: Callable[[Launch], StopReason]) -> int:
        opener: Any = self.opener(self.server, process)

        def emit(event: Event) -> None:
            self.world.tell(f"{process.name}: {event}")
            self.told(process, event)

        def hold(launch: Launch) -> StopReason:
            self.working.append((process, launch))
            try:
                return work(launch)
            finally:
                self.working.remove((process, launch))

        code = 0
        try:
            run_launch(plan, opener, emit, lambda: (group, hold), None, process)
        except PollConsumerError as error:
            self.world.tell(f"{process.name}: {error}")
            code = error.exit_code
        process.sleep(draw(self.platform.exit, process.stream))
        return code

    # Handlers

    def handlers(self, process: Process) -> dict[str, Handler]:
        soon = Backoff(first="50ms", factor=1, most="50ms", jitter=0)

        def handler(name: str, act: Callable[[Process, Context, dict[str, Any]], Any], **options: Any) -> Handler:
            def run(payload: dict[str, Any], context: LaunchContext | None) -> Any:
                assert context is not None
                state = (context.state or {}).get("done", 0)
                return self._execute(process, context, payload, partial(act, process, context, payload), state)

            return Handler(name, run, takes_context=True, **common(**options))

        def common(**options: Any) -> dict[str, Any]:
            attempts = 1 if options.get("at_most_once") else MAX_ATTEMPTS
            return {"max_attempts": attempts, "retry": soon, **options}

        def run_bare(payload: dict[str, Any], _: LaunchContext | None) -> Any:
            in_flight = self._flights[process].in_flight()
            reservation = next(each for each in in_flight if each.name == payload["id"])
            return self._execute(process, reservation, payload, partial(behave, process, reservation, payload))

        hooks = Hooks(lambda text, _: self.world.tell(text))
        hooks.before.append(skip_if_told)
        return {
            each.name: with_hooks(each, hooks) if each.name in HOOKED else each
            for each in (
                handler("plain", behave),
                handler("hooked", behave),
                handler(LATEST, take_steps_once_failed),
                handler(AFTER_END, behave),
                Handler("bare", run_bare, **common()),
                handler("hopeless", give_up),
                handler("isolated", behave, isolated=True),
                handler("once", behave, at_most_once=True),
                handler("parent", partial(have_children, self.queues)),
                handler("steps", take_steps),
                handler("member", end_member),
                handler("link", go_on),
                handler("callback", look_back),
                handler("starts", partial(start_batch, self.history)),
                bulk_handler(self, process, "bulk", **common()),
                bulk_handler(self, process, "bulk_isolated", **common(isolated=True)),
                bulk_handler(self, process, "bulk_once", **common(at_most_once=True)),
            )
        }

    def _execute(
        self,
        process: Process,
        call: Context | Reservation,
        payload: dict[str, Any],
        act: Callable[[], dict[str, Any]],
        state: int = 0,
    ) -> Any:
        """Record one execution in the history."""
        history, at = self.history, len(self.history.executions)
        isolated = self.world.running in process.children
        if isinstance(call, Reservation):
            name, generation, fence = call.name, rows.generation(call.row), rows.fence(call.row)
        else:
            name, generation, fence = call.id, call.generation, call.fence
        history.executions.append(
            Execution(
                name,
                call.handler,
                call.queue,
                call.attempt,
                generation,
                fence,
                id(self.world.running) if isolated else id(process),
                digest(payload),
                self.now_us(),
                found=state,
            )
        )
        self.world.tell(f"{process.name}: begins {name}, attempt {call.attempt}")
        outcome, more, result = "ok", dict[str, Any](), None
        try:
            process.sleep(SHORTEST)
            more = act()
            result = more.pop("result", None)
        except BaseException as error:
            outcome, more = type(error).__name__, getattr(error, "more", {})
            raise
        finally:
            history.executions[at] = history.executions[at]._replace(ended=self.now_us(), outcome=outcome, **more)
            self.world.tell(f"{process.name}: ends {name}: {outcome}")
        return result

    def now_us(self) -> int:
        """By a clock that nobody sets."""
        return int((BEGINS + self.world.now) * 1_000_000)

    def ran(self) -> list[Ran]:
        return [
            Ran((each.name.split()[0],), id(each), each.ended - each.began, each.code, "", "")
            for each in self.processes
            if each.code is not None
        ]


def skip_if_told(context: Context) -> None:
    if SKIP in context.headers:
        raise Skip


def give_up(_process: Process, _context: Context, _payload: dict[str, Any]) -> dict[str, Any]:
    raise Fatal("no attempt can help")


def have_children(queues: Sequence[str], process: Process, context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Enqueues follow-ups, one into each queue, whose ids no other execution gives."""
    token = f"{context.generation}.{context.attempt}.{context.fence}"
    child = {"seconds": 0.0, "fails": 0}
    follow_ups = tuple(
        {"id": f"{context.id}-{token}-{queue}", "queue": queue, "handler": "plain", "digest": digest(child)}
        for queue in queues
    )
    try:
        for each in follow_ups:
            context.enqueue("plain", child, id=each["id"], queue=each["queue"])
        behave(process, context, payload)
    except Exception as error:
        error.more = {"follow_ups": follow_ups}  # type: ignore[attr-defined]  # for `_execute`
        raise
    return {"follow_ups": follow_ups}


def take_steps(process: Process, context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Four steps with a checkpoint after each, then a signal; once, after the second, it yields, and after the third it
    sleeps."""
    done, kept, given = (context.state or {"done": 0})["done"], None, dict[str, str]()
    try:
        behave(process, context, payload)
        for number in range(1, 5):
            given[f"{number}"] = context.step(f"{number}", lambda: f"{id(given)} at {process.world.now}")
            if number > done:
                context.checkpoint({"done": number})
                kept = number
                if number == 2:
                    raise Yield
            if number == 3:
                context.sleep("50ms")
        given[SIGNAL] = str(context.wait_for(SIGNAL, WAITS))
    except BaseException as error:
        error.more = {"kept": kept, "given": given}  # type: ignore[attr-defined]  # for `_execute`
        raise
    return {"kept": kept, "given": given}


def take_steps_once_failed(process: Process, context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Takes steps in the attempts after the first one that fails, if any does."""
    return (take_steps if payload["fails"] else behave)(process, context, payload)
