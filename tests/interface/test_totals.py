"""What is started, opened or kept for each queue, call or request has a bound for the whole. Each row of the table
names a thing and its bound, fills it beyond that, and says what happens there. The rows of requests under ASGI are in
tests/web/test_slow_clients.py, of launches of an endpoint in tests/web/test_launch_starter.py."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pollconsumer import PollConsumer, StoreUnreachable
from pollconsumer.core import spans
from pollconsumer.interface import on_demand
from pollconsumer.interface.api import store_calls
from pollconsumer.interface.settings.load import load_settings
from pollconsumer.runtime import spool as spooling
from pollconsumer.runtime.new_messages import new_message
from pollconsumer.store.queues import producer
from pollconsumer.store.queues.producer import Producer
from tests.conftest import NAMESPACE
from tests.inner import calls_of
from tests.site import PATIENCE, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.store.servers import Server

MOST = 5


class Scene(NamedTuple):
    valkey: Server
    place: Path
    patch: pytest.MonkeyPatch
    caplog: pytest.LogCaptureFixture

    def producer(self) -> Producer:
        return Producer(self.valkey.wire(), NAMESPACE)


def idle_connections(scene: Scene) -> None:
    """Calls at one time each have a connection. Some of these are kept, the others closed."""
    app = PollConsumer(store=scene.valkey.url, namespace=NAMESPACE)
    pool, together = calls_of(app)._pool, threading.Barrier(2 * MOST)  # noqa: SLF001

    def call() -> None:
        with pool.take():
            together.wait(PATIENCE)

    threads = [threading.Thread(target=call) for _ in range(2 * MOST)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(pool._idle) == MOST  # noqa: SLF001
    assert not app.enqueue("h", {}).duplicate


def queues_of_a_producer(scene: Scene) -> None:
    """What a producer remembers of queues is forgotten, and found again."""
    sends = scene.producer()
    for n in range(3 * MOST):
        for name in ("a", "b"):
            message = new_message("h", {}, queue=f"q{n}")
            assert not sends.enqueue_one(message).duplicate, name
        assert len(sends._registered) <= MOST  # noqa: SLF001
    assert sends.enqueue_one(new_message("h", {}, queue="q0", id="m")) == ("m", False)


def spooled_files(scene: Scene) -> None:
    """No further message is accepted; files that were set aside count, too."""
    spool = spooling.Spool(scene.place / "spool", NAMESPACE)
    for n in range(MOST):
        spool.put([new_message("h", {}, id=f"m{n}")])
    one = next(each for each in spool.directory.iterdir() if not each.name.endswith("lock"))
    one.rename(one.with_name(one.name + spooling.REFUSED))
    with pytest.raises(StoreUnreachable, match=f"spool full: {MOST} files"):
        spool.put([new_message("h", {})])


def spooled_bytes(scene: Scene) -> None:
    """The same."""
    spool = spooling.Spool(scene.place / "spool", NAMESPACE)
    spool.put([new_message("h", {"text": "x" * MOST})])
    with pytest.raises(StoreUnreachable, match=r"spool full: \d+ bytes"):
        spool.put([new_message("h", {})])


def started_processes(scene: Scene) -> None:
    """No further launch is started, and a warning says so, until one has ended."""
    (scene.place / "config.toml").write_text('consumer.on_demand = "process"\n')
    settings = load_settings(scene.place / "config.toml")
    scene.patch.setattr(on_demand, "_started", [])
    scene.patch.setattr(on_demand, "launch_command", lambda *_: [sys.executable, "-c", "input()"])
    began: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(command: Any, **given: Any) -> subprocess.Popen[bytes]:
        began.append(popen(command, **given | {"stdin": subprocess.PIPE}))
        return began[-1]

    scene.patch.setattr(subprocess, "Popen", start)
    for _ in range(2 * MOST):
        on_demand.start_launch(settings)
    assert len(began) == MOST
    assert f"no launch on demand: {MOST} processes that have not ended" in scene.caplog.text
    for each in began:
        each.communicate(b"\n")
    on_demand.start_launch(settings)
    assert len(began) == MOST + 1
    began[-1].communicate(b"\n")


def requests_for_launches(scene: Scene) -> None:
    """The same; the exit of the program waits for all answers as long as for one."""
    (scene.place / "config.toml").write_text('consumer.on_demand = "http://127.0.0.1:9/launch"\n')
    settings = load_settings(scene.place / "config.toml")
    goes_on, asked = threading.Event(), list[object]()

    def delivered(ping: object, _: float) -> None:
        asked.append(ping)
        assert goes_on.wait(PATIENCE)

    scene.patch.setattr(on_demand, "_sending", [])
    scene.patch.setattr(on_demand, "delivered", delivered)
    for _ in range(2 * MOST):
        on_demand.start_launch(settings)
    assert f"no launch on demand: {MOST} requests without an answer" in scene.caplog.text
    wait_until(lambda: len(asked) == MOST, "the requests")
    goes_on.set()
    assert all(each.join(PATIENCE) for each in on_demand._sending)  # noqa: SLF001
    waited: list[float] = []
    clock = iter([0.0, *(float(n) for n in range(MOST))])

    class Late:
        def join(self, seconds: float) -> bool:
            waited.append(seconds)
            return False

    scene.patch.setattr(on_demand, "_sending", [Late()] * MOST)
    scene.patch.setattr(on_demand, "time", type("time", (), {"monotonic": staticmethod(lambda: next(clock))}))
    on_demand._await_answers()  # noqa: SLF001
    assert waited == [on_demand.ANSWERED_WITHIN - n for n in range(MOST)]
    scene.patch.setattr(on_demand, "_sending", [])


def rates_of_messages(_: Scene) -> None:
    """The rate that was used longest ago is forgotten."""
    most = spans._parsed.cache_info().maxsize  # noqa: SLF001
    assert most is not None
    for n in range(1, 2 * most):
        assert spans.parse_rate(f"1/{n}s") == (1, n * 1000)
    assert spans._parsed.cache_info().currsize == most  # noqa: SLF001


TABLE: dict[str, tuple[Callable[[Scene], None], Any, str]] = {
    "idle connections of an application": (idle_connections, store_calls, "MOST_IDLE"),
    "queues that a producer remembers": (queues_of_a_producer, producer, "MOST_QUEUES"),
    "files of the spool": (spooled_files, spooling, "MOST_FILES"),
    "bytes of the spool": (spooled_bytes, spooling, "MOST_BYTES"),
    "processes started on demand": (started_processes, on_demand, "MOST_STARTED"),
    "requests for launches on demand": (requests_for_launches, on_demand, "MOST_STARTED"),
    "rates read from messages": (rates_of_messages, spans, "MOST_IN_A_PERIOD"),
}
"""Thing → what fills it, and its bound."""


@pytest.mark.parametrize("thing", TABLE)
def test_what_is_kept_for_each_has_a_bound_for_the_whole(
    thing: str,
    valkey: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fill, module, bound = TABLE[thing]
    monkeypatch.setattr(module, bound, MOST)
    fill(Scene(valkey, tmp_path, monkeypatch, caplog))
