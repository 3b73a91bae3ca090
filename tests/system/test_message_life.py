"""What a handler may do with its message, and a producer learn of it, through real launches and their deaths."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import NotCompleted, PollConsumer
from tests.site import Site, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

HANDLERS = """
from pollconsumer import Context, Yield

@app.handler(result_ttl="1h")
def double(n: int) -> dict:
    return {"doubled": 2 * n}

@app.handler(result_ttl=0)
def forgetful() -> str:
    return "gone"

@app.handler
def odd(how: str) -> object:
    return {1, 2} if how == "set" else "x" * 70_000 if how == "large" else float("nan")

@app.handler(delivery="at_most_once")
def once(name: str, how: str = "") -> None:
    note(f"once {name}")
    if how == "die":
        os.kill(os.getpid(), 9)
    if how == "fail":
        raise ValueError("no")

@app.handler(max_attempts=1)
def parent(context: Context, how: str = "") -> str:
    note(f"parent {context.attempt} {context.generation} {context.idempotency_key} {context.time_left() > 0}")
    child = context.enqueue("record", {"name": "child"}, key="one child")
    context.enqueue("record", {"name": "elsewhere"}, queue="other")
    context.enqueue("record", {"name": "later"}, in_="1d")
    if how == "fail":
        raise ValueError("no")
    if how == "die":
        os.kill(os.getpid(), 9)
    return child

@app.handler
def steps(context: Context, how: str = "") -> int:
    done = (context.state or {"done": 0})["done"]
    note(f"step {done} attempt {context.attempt}")
    context.checkpoint({"done": done + 1})
    if done == 0 and how == "die":
        os.kill(os.getpid(), 9)
    if done < 2:
        raise Yield
    return done

@app.handler
def patient(context: Context) -> None:
    note("waiting")
    while not context.cancelled:
        time.sleep(0.01)
    note(f"cancelled with {context.time_left() > 1}")

@app.handler
async def several(n: int) -> list:
    import asyncio
    handles = await asyncio.gather(*(double.enqueue_async(n) for n in range(n)))
    async with asyncio.timeout(30):
        return [await handle.state_async() for handle in handles]

@app.handler
def deep() -> None:
    def inner() -> None:
        raise LookupError("in the depth")
    inner()
"""

CALLING = """
from pollconsumer import Context

@app.handler
def charge(amount: int) -> dict:
    note(f"charged {{amount}}")
    return {{"paid": amount}}

@app.handler(isolation="{isolation}")
def order(context: Context) -> dict:
    return context.call("charge", {{"amount": 7}}, timeout="1h")
"""


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site('[consumer]\nqueues = ["default", "other"]\nmin_margin = "100ms"\nestimated_duration = "1ms"\n')
    with (site.directory / "handlers.py").open("a") as handlers:
        handlers.write(HANDLERS)
    yield site
    site.close()


@pytest.fixture
def app(site: Site, monkeypatch: pytest.MonkeyPatch) -> PollConsumer:
    for name, value in site.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(site.directory)
    return PollConsumer()


def shown(site: Site, message_id: str) -> Any:
    return site.json("status", message_id)


def counts(site: Site, queue: str = "default") -> Any:
    overview = site.json("status")
    return next(entry for entry in overview["queues"] if entry["name"] == queue)


def test_a_result_is_kept_and_waited_for(site: Site, app: PollConsumer) -> None:
    handle = app.enqueue("double", {"n": 21})
    with pytest.raises(TimeoutError, match="it is ready"):
        handle.wait("10ms")
    consumer = threading.Thread(target=site.drain)
    consumer.start()
    assert handle.wait(90) == {"doubled": 42}
    consumer.join()
    assert shown(site, handle.id)["result"] == {"doubled": 42}
    assert "result" in site.command("status", handle.id).stdout
    assert app.enqueue("double", {"n": 1}, id=handle.id).duplicate
    assert handle.state == "completed"


@pytest.mark.parametrize("concurrency", ["1", "3"])
def test_an_async_handler_enqueues_without_blocking_the_loop_of_its_launch(
    site: Site, app: PollConsumer, concurrency: str
) -> None:
    handles = [app.enqueue("several", {"n": n}) for n in (5, 20)]
    assert site.drain("--concurrency", concurrency).returncode == 0
    assert [len(handle.wait("30s") or ()) for handle in handles] == [5, 20]
    assert counts(site)["completed"] == 2 + 25


def test_a_result_that_cannot_be_kept_is_dropped_with_a_word(site: Site) -> None:
    dropped = [site.enqueue("odd", how=how) for how in ("set", "large", "nan")]
    dropped.append(site.enqueue("forgetful"))
    launch = site.drain()
    assert launch.returncode == 0
    assert launch.stderr.count("is not kept") == 3
    for message_id in dropped:
        assert (shown(site, message_id)["state"], shown(site, message_id)["result"]) == ("completed", None)


def test_waiting_tells_how_a_message_ended_otherwise(site: Site, app: PollConsumer) -> None:
    dead, cancelled = app.enqueue("fatal"), app.enqueue("record", {"name": "x"}, in_="1h")
    site.command("cancel", cancelled.id)
    site.drain()
    with pytest.raises(NotCompleted, match="dead: Fatal: never again"):
        dead.wait(90)
    with pytest.raises(NotCompleted) as ended:
        cancelled.wait(90)
    assert ended.value.state == "cancelled"


def test_the_last_error_is_kept_with_its_traceback(site: Site) -> None:
    message_id = site.enqueue("deep")
    site.drain()
    details = shown(site, message_id)
    assert details["last_error"] == "LookupError: in the depth"
    assert details["traceback"].splitlines()[-1] == "LookupError: in the depth"
    assert "inner" in details["traceback"]
    assert "pollconsumer/runtime" not in details["traceback"]
    assert "in inner" in site.command("status", message_id).stdout


@pytest.mark.crossing
def test_at_most_once_means_never_twice_whatever_happens(site: Site) -> None:
    fine, failing, dying = (site.enqueue("once", name=how, how=how) for how in ("fine", "fail", "die"))
    assert site.drain().returncode == -signal.SIGKILL
    site.await_release()
    site.drain()
    assert site.notes() == ["once fine", "once fail", "once die"]
    assert shown(site, fine)["state"] == "completed"
    assert (shown(site, failing)["state"], shown(site, failing)["last_error"]) == ("dead", "ValueError: no")
    assert shown(site, dying)["state"] == "dead"
    assert shown(site, dying)["last_error"].startswith("skipped: ")
    assert counts(site)["skipped"] == 1
    assert "skipped" in site.command("status").stdout
    site.command("dead", "redrive", dying)
    assert site.drain().returncode == -signal.SIGKILL
    assert site.notes().count("once die") == 2


def test_what_a_handler_enqueues_through_its_context_goes_with_the_completion(site: Site) -> None:
    message_id = site.enqueue("parent")
    assert site.drain().returncode == 0
    assert site.notes()[0] == f"parent 1 0 pollconsumer:default:{message_id} True"
    assert sorted(site.notes()[1:]) == ["child", "elsewhere"]
    assert shown(site, shown(site, message_id)["result"])["state"] == "completed"
    assert counts(site)["scheduled"] == 1


def test_what_a_handler_enqueues_goes_nowhere_when_it_fails_or_dies(site: Site) -> None:
    site.enqueue("parent", how="fail")
    site.drain()
    site.enqueue("parent", how="die")
    assert site.drain().returncode == -signal.SIGKILL
    site.drain()
    assert [note for note in site.notes() if not note.startswith("parent")] == []
    assert counts(site)["scheduled"] == 0


OUTLIVING = """
kept = []

@app.handler(isolation="process")
def keep_apart(context: Context) -> None:
    kept.append(context)

@app.handler(isolation="process")
def enqueue_late_apart() -> None:
    for late in (
        lambda: kept[0].enqueue("record", {"name": "lost"}),
        lambda: kept[0].checkpoint({"of": "another"}),
        lambda: kept[0].start_batch("another").status(),
    ):
        try:
            late()
        except Exception as error:
            note(f"{type(error).__name__}: {error}")

@app.handler
def keep(context: Context) -> None:
    keep_apart(context)

@app.handler
def enqueue_late() -> None:
    enqueue_late_apart()
"""


@pytest.mark.parametrize("apart", ["", "_apart"])
def test_what_outlives_an_attempt_can_neither_enqueue_with_its_completion_nor_save_nor_ask(
    site: Site, apart: str
) -> None:
    with (site.directory / "handlers.py").open("a") as handlers:
        handlers.write(OUTLIVING)
    site.enqueue(f"keep{apart}")
    site.enqueue(f"enqueue_late{apart}")
    assert site.drain().returncode == 0
    for what, note in zip(("enqueue", "checkpoint", "batch"), site.notes(), strict=True):
        assert note.startswith(f"UsageError: context.{what}: after the attempt; ")


def test_a_checkpoint_carries_a_message_through_launches_uncharged(site: Site) -> None:
    message_id = site.enqueue("steps")
    site.enqueue("record", name="other work")
    for done in range(3):
        launch = site.drain()
        assert launch.returncode == 0, launch.stderr
        assert site.notes().count(f"step {done} attempt 1") == 1
    assert (shown(site, message_id)["state"], shown(site, message_id)["attempts"]) == ("completed", 1)
    assert shown(site, message_id)["result"] == 2
    assert site.notes().index("other work") < site.notes().index("step 1 attempt 1")


def test_a_checkpoint_survives_the_death_of_its_process(site: Site) -> None:
    site.enqueue("steps", how="die")
    assert site.drain().returncode == -signal.SIGKILL
    site.await_release()
    site.drain()
    assert site.notes() == ["step 0 attempt 1", "step 1 attempt 2"]


def test_a_handler_is_told_that_the_launch_should_stop(site: Site) -> None:
    site.enqueue("patient")
    launch = site.start("run")
    wait_until(lambda: site.notes() == ["waiting"], "handler")
    launch.send_signal(signal.SIGTERM)
    assert launch.wait(90) == 0
    assert site.notes()[-1] == "cancelled with True"


def test_messages_with_one_concurrency_key_are_handled_one_at_a_time(site: Site) -> None:
    for n in range(3):
        site.enqueue("hold", "--concurrency-key", "customer", name=str(n))
    site.enqueue("hold", name="free")
    launch = site.start("run", "--concurrency", "4", "--timeout", "10m")
    wait_until(lambda: {"begin 0", "begin free"} <= set(site.notes()), "both")
    waiting = site.json("list", "--state", "ready")
    assert len(waiting) == 2
    assert counts(site)["ready"] == 2
    (site.directory / "gate").touch()
    wait_until(lambda: "end 2" in site.notes(), "the last of them")
    launch.terminate()
    assert launch.wait(90) == 0
    assert [note for note in site.notes() if "free" not in note] == [
        f"{what} {n}" for n in range(3) for what in ("begin", "end")
    ]


def test_messages_with_one_order_key_wait_for_the_retries_of_those_before_them(site: Site) -> None:
    site.enqueue("fail", "--order-key", "customer", name="first", times=2)
    ids = [site.enqueue("record", "--order-key", "customer", name=str(n)) for n in range(2)]
    site.enqueue("hold", name="free")
    launch = site.start("run", "--concurrency", "4", "--timeout", "10m")
    wait_until(lambda: "1" in site.notes(), "the last of them")
    (site.directory / "gate").touch()
    launch.terminate()
    assert launch.wait(90) == 0
    assert [note for note in site.notes() if "free" not in note] == [*["try first"] * 3, "0", "1"]
    assert [site.json("status", each)["attempts"] for each in ids] == [1, 1]


def test_a_person_is_told_what_a_message_waits_for_by_its_order_key(site: Site) -> None:
    first, second = (site.enqueue("hold", "--order-key", "customer", name=name) for name in ("first", "second"))
    launch = site.start("run", "--concurrency", "4", "--timeout", "10m")
    wait_until(lambda: site.json("status", second)["waits_for_message"] == first, "line")
    assert f"waits for     {first}, before it by order key customer" in site.command("status", second).stdout
    refused = site.command("reschedule", second, "--priority", "-1")
    assert refused.returncode == 65
    assert "it has an order key" in refused.stderr
    (site.directory / "gate").touch()
    launch.terminate()
    assert launch.wait(90) == 0


def test_a_queue_hands_out_no_more_than_its_quota(site: Site) -> None:
    with (site.directory / "config.toml").open("a") as config:
        config.write('[queues.default]\nquota = "3/1h"\n')
    for n in range(5):
        site.enqueue("record", name=str(n))
    site.enqueue("record", "--queue", "other", name="of another queue")
    for _ in range(2):
        assert site.drain().returncode == 0
    assert site.notes() == ["0", "1", "2", "of another queue"]
    assert counts(site)["ready"] == 2


def test_a_unique_key_lapses_after_its_lifetime(site: Site) -> None:
    """A command takes longer to start than the short one lasts."""
    lapsing = [site.enqueue("record", "--key", "a", "--key-lifetime", "1ms", name=name) for name in ("1", "2")]
    lasting = [site.enqueue("record", "--key", "b", "--key-lifetime", "1h", name=name) for name in ("3", "4")]
    assert lapsing[0] != lapsing[1]
    assert lasting[0] == lasting[1]
    site.drain()
    assert site.notes() == ["1", "2", "3"]


def test_options_that_make_no_sense_alone_are_refused(site: Site) -> None:
    lifetime = site.command("enqueue", "record", "--key-lifetime", "5m")
    limit = site.command("enqueue", "record", "--concurrency-limit", "2")
    assert (lifetime.returncode, limit.returncode) == (65, 65)
    assert lifetime.stderr == "pollconsumer: error: key_lifetime: 300.0; give the key, too\n"
    assert limit.stderr.startswith("pollconsumer: error: concurrency_limit: 2; give the concurrency_key")


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ('[queues.mail]\nquota = "100"', "queues.mail.quota: 100; write messages / period, as in 100/1m"),
        ('[queues.mail]\nquota = "0/1m"', "queues.mail.quota: 0/1m; write messages / period, as in 100/1m"),
        ('[queues.mail]\nquota = "5/1ms"', "queues.mail.quota: 5/1ms; its period must be between 100ms and 31d"),
        ("[queues.mail]\nmax_in_flight = 0", "queues.mail.max_in_flight: 0; must be 1-1000000"),
        ("[queues.mail]\nweight = 0", "queues.mail.weight: 0; must be 1-1000"),
        ("[queues.mail]\nqouta = 1", "unknown key: queues.mail.qouta; did you mean quota?"),
        ('[queues."a b"]\nweight = 1', "queues.a b: its name; use 1 to 64 of the characters A-Z a-z 0-9 _ . -"),
    ],
)
def test_limits_that_cannot_be_meant_are_refused(site: Site, section: str, problem: str) -> None:
    with (site.directory / "config.toml").open("a") as config:
        config.write(section)
    refused = site.command("check")
    assert (refused.returncode, refused.stderr) == (78, f"pollconsumer: error: config.toml: {problem}\n")


@pytest.mark.parametrize("role", ["run", "move"])
def test_a_queue_keeps_as_many_messages_that_have_ended_as_its_settings_say(site: Site, role: str) -> None:
    for name in ("a", "b", "c"):
        site.enqueue("record", name=name)
        site.enqueue("fail", name=name, times=9)
    site.drain("--linger", "1s")
    with (site.directory / "config.toml").open("a") as file:
        file.write('\n[queues.default]\nkeep_completed = "1d/2"\nkeep_dead = "1"\n')
    launch = site.start(role, *(["--until-empty"] if role == "run" else []))

    def kept() -> tuple[int, int]:
        queue = site.json("status")["queues"][0]
        return queue["completed"], queue["dead"]

    wait_until(lambda: kept() == (2, 1), "forgetting")
    launch.send_signal(signal.SIGTERM)
    launch.communicate(timeout=90)
    assert launch.returncode == 0


@pytest.mark.parametrize("keep", ["1d/2d", "1/2", "", "soon", "-1", "1d/2/3"])
def test_what_is_wrong_with_a_life_of_messages_is_said_in_a_line(site: Site, keep: str) -> None:
    with (site.directory / "config.toml").open("a") as file:
        file.write(f'\n[queues.default]\nkeep_dead = "{keep}"\n')
    refused = site.command("check")
    assert (refused.returncode, refused.stderr.count("\n")) == (78, 1)
    assert "queues.default" in refused.stderr
    assert "keep_dead" in refused.stderr


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_a_handler_in_whatever_process_calls_another_message(site: Site, isolation: str) -> None:
    with (site.directory / "handlers.py").open("a") as handlers:
        handlers.write(CALLING.format(isolation=isolation))
    message = site.enqueue("order")
    site.drain("--linger", "2s")
    found = site.json("status", message)
    assert (found["state"], found["result"], found["attempts"]) == ("completed", {"paid": 7}, 1)
    assert site.notes().count("charged 7") == 1
