"""Each finding of `doctor` appears when it should, and not otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.choices import HandOff
from pollconsumer.core.coverage import WorkBeyond
from pollconsumer.core.recurrence import Recurrence
from pollconsumer.store.reading.inspector import QueueCounts
from pollconsumer.store.recurrences import RecurrenceStatus, awaited
from pollconsumer.store.server import Load
from pollconsumer.watching.facts import (
    Expected,
    Facts,
    Finding,
    HeldOrder,
    QueueFacts,
    ServerFacts,
    groups_of,
)
from pollconsumer.watching.findings import findings_of, unserved_times
from tests.as_set import expected_as_set

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NOW = 1_900_000_000_000
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
NO_LOAD = Load(0.0, None, None, None)


def launches(
    *, ago: float = 5.0, every: float = MINUTE, count: int = 30, queues: Sequence[str] = ("mail",), **fields: Any
) -> list[dict[str, Any]]:
    """The last ended ``ago`` seconds ago, after 55 seconds; newest first."""
    role = fields.get("role", "consumer")
    return [
        {
            "role": role, "queues": [*queues], "stop_reason": "no_time_to_idle",
            "lineage": f"{role}:{','.join(queues)}:0",
            "started_ms": round(NOW - 1000 * (ago + 55 + every * n)),
            "ended_ms": round(NOW - 1000 * (ago + every * n)),
            "running_seconds": 55.0, "launch_offset_seconds": 1.0, "next_tick_seconds": every - 1,
            "margin_seconds": 5.0,
            "launcher": "parallel", "platform": "cron",
            "launch_id": f"{ago + every * n:g}",
        } | fields
        for n in range(count)
    ]  # fmt: skip


def queue_facts(name: str, *, oldest_ready: float | None = None, **given: Any) -> QueueFacts:
    counted = {
        each: given.pop(each) for each in QueueCounts._fields if each in given and each not in ("parked", "skipped")
    }
    counts = dict.fromkeys(QueueCounts._fields, 0) | {"resumes_in_seconds": None, "load": NO_LOAD} | counted
    return QueueFacts(QueueCounts(**counts | {"name": name, "oldest_ready_seconds": oldest_ready}), **given)


def recurrence_status(
    name: str, queue: str, owners: tuple[str, ...] = (), error: str | None = None
) -> RecurrenceStatus:
    return awaited(Recurrence(name, "handler", every=60.0, queue=queue), NOW)._replace(owners=owners, error=error)


MAIL = queue_facts("mail")


def facts(
    server: ServerFacts | None = None,
    queues: Sequence[QueueFacts] = (MAIL,),
    ledger: Sequence[Mapping[str, Any]] | None = None,
    recurrences: Sequence[RecurrenceStatus] = (),
    expected: Expected | None = None,
) -> Facts:
    return Facts(
        NOW,
        server or ServerFacts(),
        queues,
        recurrences,
        launches() if ledger is None else ledger,
        expected or expected_as_set(period=MINUTE),
    )


def names(found: Facts) -> list[str]:
    return [finding.name for finding in findings_of(found)]


def names_but_of_holes(found: Facts) -> list[str]:
    return [name for name in names(found) if name != "launches_missed"]


def test_lost_nodes_of_a_cluster_are_found_with_the_queues_that_wait_for_them() -> None:
    parted = facts()._replace(lost=["redis://h2:6379"], unreachable=["mail", "sync"])
    assert [str(each) for each in findings_of(parted)] == [
        "nodes of the cluster do not answer: redis://h2:6379; start them, or replicas of them; "
        "these queues wait: mail, sync"
    ]
    assert names(parted._replace(unreachable=[])) == ["node_lost"]


def test_nothing_is_found_where_all_is_well() -> None:
    assert findings_of(facts()) == []
    assert findings_of(facts(queues=(), ledger=())) == []


def test_what_is_wrong_with_one_of_several_nodes_is_said_with_its_place() -> None:
    nodes = [ServerFacts(location="h2:6379"), ServerFacts(location="h3:6379", appends=False)]
    found = findings_of(facts(ServerFacts(location="h1:6379"))._replace(others=nodes))
    assert [str(each) for each in found] == [
        "no append-only file at h3:6379: accepted messages are lost if the server dies; "
        "set appendonly yes, or attach a replica"
    ]


GIB = 1 << 30
SERVERS = {
    "clock_skew": (ServerFacts(skew=-2.6, skew_within=0.5), ServerFacts(skew=2.4, skew_within=0.5)),
    "clock_set_back": (ServerFacts(set_back=7200.0), ServerFacts()),
    "persistence": (ServerFacts(appends=False), ServerFacts(appends=False, replica_lags=(1.0,))),
    "append_only_file": (
        ServerFacts(append_only_bytes=5 * GIB, append_only_base=GIB),
        ServerFacts(append_only_bytes=3 * GIB, append_only_base=GIB),
    ),
    "disk_space": (
        ServerFacts(append_only_bytes=GIB, append_only_base=GIB, disk_free=GIB),
        ServerFacts(append_only_bytes=GIB, append_only_base=GIB, disk_free=2 * GIB),
    ),
    "eviction": (
        ServerFacts(max_memory=GIB, policy="volatile-lru"),
        ServerFacts(max_memory=0, policy="volatile-lru"),
    ),
    "memory": (ServerFacts(max_memory=1000, used_memory=901), ServerFacts(max_memory=1000, used_memory=899)),
    "rights": (ServerFacts(may_cut_off=False), ServerFacts(may_cut_off=True)),
}


@pytest.mark.parametrize("name", SERVERS)
def test_what_is_wrong_with_the_server_is_found_and_only_that(name: str) -> None:
    wrong, well = SERVERS[name]
    assert names(facts(wrong)) == [name]
    assert names(facts(well)) == []


def test_what_the_server_could_not_write_is_named() -> None:
    (found,) = findings_of(facts(ServerFacts(broken=("a snapshot",))))
    assert (found.name, found.value) == ("persistence", "a snapshot")


def test_launches_that_a_server_could_not_record_are_no_findings_beside_it() -> None:
    died = launches(count=3, stop_reason="died")
    for ledger in (launches(ago=HOUR), [*died, *launches(ago=185)]):
        assert len(names(facts(ledger=ledger))) == 1
        assert names(facts(ServerFacts(broken=("its append-only file",)), ledger=ledger)) == ["persistence"]


def test_missing_and_lagging_replicas_are_found_where_producers_wait_for_them() -> None:
    waits = expected_as_set(period=MINUTE, replicas=2)
    assert names(facts(ServerFacts(replica_lags=(0.0,)), expected=waits)) == ["replication"]
    assert names(facts(ServerFacts(replica_lags=(0.0, 1.0)), expected=waits)) == []
    assert names(facts(ServerFacts(replica_lags=(0.0,)))) == []
    states = {"10.0.0.3:6379": "wait_bgsave", "10.0.0.2:6379": "online"}
    [found] = findings_of(facts(ServerFacts(replica_lags=(0.0,), replica_states=states), expected=waits))
    assert found.value == "1 of 2 online: 10.0.0.2:6379 online, 10.0.0.3:6379 wait_bgsave; 0 not connected"
    [found] = findings_of(facts(ServerFacts(), expected=waits))
    assert found.value == "0 of 2 online: none; 2 not connected"
    assert names(facts(ServerFacts(replica_lags=(0.0, 30.0)))) == ["replication"]


def test_rights_of_a_launch_are_missed_only_where_no_launch_comes() -> None:
    server = ServerFacts(lacking=("BLPOP",))
    assert names(facts(server)) == []
    assert names(facts(server, queues=(), ledger=())) == ["rights"]


def a_project(
    name: str, *, ago: float = 5.0, every: float = 2 * MINUTE, count: int = 15, **also: Any
) -> list[dict[str, Any]]:
    return launches(ago=ago, every=every, count=count, **{"config": f"/{name}/config.toml", "handlers": name} | also)


def shared_by(*ledgers: list[dict[str, Any]]) -> list[str]:
    ledger = sorted((each for ledger in ledgers for each in ledger), key=lambda each: -each["started_ms"])
    return [finding.value for finding in findings_of(facts(ledger=ledger)) if finding.name == "namespace_shared"]


def test_projects_whose_launches_come_in_turn_for_one_lease_are_found_with_their_configurations() -> None:
    first = a_project("a")
    assert shared_by(first, a_project("b", ago=65)) == ["/a/config.toml, /b/config.toml"]
    assert shared_by(first, a_project("b", ago=65, count=1)) == ["/a/config.toml, /b/config.toml"]
    assert shared_by(first, a_project("b", ago=65), a_project("c", ago=45)) == [
        "/a/config.toml, /b/config.toml, /c/config.toml"
    ]


def test_no_projects_are_found_in_two_configurations_of_one_in_its_new_version_and_in_launches_of_other_queues() -> (
    None
):
    first = a_project("a")
    assert shared_by(first, a_project("b", ago=65, handlers="a")) == []
    assert shared_by(first, a_project("a", ago=65, handlers="b")) == []
    assert shared_by(a_project("a", count=5), a_project("b", ago=605)) == []
    assert shared_by(first, a_project("b", ago=65, queues=("sms",))) == []
    assert shared_by(a_project("a", count=60), a_project("b", ago=65 + HOUR)) == []
    assert shared_by(first, a_project("", ago=65, config="")) == []


def test_a_launcher_that_stopped_is_found_after_three_missing_launches() -> None:
    assert names(facts(ledger=launches(ago=175))) == []
    (found,) = findings_of(facts(ledger=launches(ago=185)))
    assert (found.name, found.subject) == ("launch_absent", "mail")
    assert "3m 5s ago, before that every 1m" in found.value


def test_a_launch_that_is_there_is_not_missed_however_long_it_works() -> None:
    running = {"stop_reason": None, "started_ms": NOW - 600_000}
    ledger = launches(ago=660)
    del ledger[0]["ended_ms"]
    assert names(facts(ledger=[ledger[0] | running, *ledger[1:]])) == []


def test_how_often_launches_come_is_learned_so_that_nightly_ones_are_not_missed_by_day() -> None:
    assert names(facts(ledger=launches(ago=20 * HOUR, every=DAY), expected=expected_as_set())) == []
    assert names(facts(ledger=launches(ago=4 * DAY, every=DAY), expected=expected_as_set())) == ["launch_absent"]


def test_a_few_launches_do_not_tell_how_often_they_come() -> None:
    unscheduled, unknown = expected_as_set(), {"next_tick_seconds": None}
    assert names(facts(ledger=launches(ago=1100, every=5, count=2, **unknown), expected=unscheduled)) == []
    assert names(facts(ledger=launches(ago=1300, every=5, count=2, **unknown), expected=unscheduled)) == [
        "launch_absent"
    ]


@pytest.mark.parametrize("expected", [expected_as_set(), expected_as_set(period=MINUTE)])
@pytest.mark.parametrize("count", [1, 2])
def test_a_few_launches_with_a_schedule_of_their_own_tell_how_often_they_come(expected: Expected, count: int) -> None:
    queues = [MAIL, queue_facts("reports", scheduled=1)]

    def found(ago: float) -> list[str]:
        ledger = newest_first(launches(), launches(ago=ago, every=DAY, count=count, queues=["reports"]))
        return names(facts(queues=queues, ledger=ledger, expected=expected))

    assert (found(3 * DAY - 60), found(3 * DAY + 60)) == ([], ["launch_absent"])
    queues[1] = queue_facts("reports")  # it is empty by day
    assert (found(3 * DAY + 60), found(4 * DAY + 60)) == (["launch_absent"], [])


def test_launches_that_come_in_office_hours_are_not_missed_at_night() -> None:
    last = launches(ago=10 * HOUR, count=1, next_tick_seconds=14 * HOUR - 1)
    assert names(facts(ledger=[*last, *launches(ago=10 * HOUR + MINUTE)], expected=expected_as_set())) == []
    gone = launches(ago=14.1 * HOUR, count=1, next_tick_seconds=14 * HOUR - 1)
    late = [*gone, *launches(ago=14.1 * HOUR + MINUTE)]
    assert names(facts(ledger=late, expected=expected_as_set())) == ["launch_absent"]


def test_the_schedule_tells_how_often_launches_come_from_the_first_one_on() -> None:
    first = launches(ago=185, count=1, next_tick_seconds=None)
    (found,) = findings_of(facts(ledger=first, expected=expected_as_set(period=MINUTE)))
    assert (found.name, found.value) == ("launch_absent", "the last one 3m 5s ago, before that every 1m")
    assert names(facts(ledger=first, expected=expected_as_set(period=HOUR))) == []
    others = expected_as_set(queues=("reports",), period=MINUTE)
    assert names(facts(ledger=first, expected=others)) == []


def test_a_consumer_that_stays_away_is_one_finding_however_many_queues_it_served() -> None:
    queues = [queue_facts("default"), queue_facts("mail", ready=2), queue_facts("reports", ready=1, scheduled=3)]
    gone = launches(ago=600, queues=["default", "mail", "reports"])
    (found,) = findings_of(facts(queues=queues, ledger=gone))
    assert (found.name, found.subject) == ("launch_absent", "default,mail,reports")
    assert found.value == "the last one 10m ago, before that every 1m, 3 ready, 3 scheduled"
    other = launches(queues=["mail"])
    (less,) = findings_of(facts(queues=queues, ledger=[*other, *gone]))
    assert found.what == less.what == "no launch has run lately (default,mail,reports)"  # an alarm goes on
    assert (less.subject, less.value) == (
        "default,reports",
        "the last one 10m ago, before that every 1m, 1 ready, 3 scheduled",
    )


def test_a_queue_that_a_person_named_once_is_not_missed_while_it_has_nothing() -> None:
    tried = launches(ago=HOUR, queues=["defualt"], count=2, platform="", stop_reason="empty")
    queues = [queue_facts("mail"), queue_facts("defualt")]
    assert names(facts(queues=queues, ledger=[*launches(), *tried])) == []
    [absent] = findings_of(facts(queues=queues, ledger=[*launches(ago=HOUR), *tried]))
    assert absent.subject == "mail"
    more = launches(ago=HOUR, queues=["defualt"], count=3, platform="", stop_reason="empty")
    for known in (
        facts(queues=[queue_facts("mail"), queue_facts("defualt", ready=1)], ledger=[*launches(), *tried]),
        facts(queues=queues, ledger=[*launches(), *tried], recurrences=[recurrence_status("a", "defualt")]),
        facts(queues=queues, ledger=tried),
        facts(queues=queues, ledger=[*launches(), *more]),
    ):
        assert "launch_absent" in names(known)


def test_recent_dead_letters_and_skipped_occurrences_are_found_and_old_ones_are_not() -> None:
    assert names(facts(queues=[queue_facts("mail", died=2)])) == ["dead_letters"]
    skipped = queue_facts("mail", skipped=7, skipped_ago=HOUR - 1)
    (found,) = findings_of(facts(queues=[skipped]))
    assert (found.name, found.value) == ("occurrences_skipped", "7 so far, the last one 59m 59s ago")
    assert names(facts(queues=[skipped._replace(skipped_ago=HOUR)])) == []
    assert names(facts(queues=[skipped], expected=expected_as_set(period=MINUTE, recent=0.0))) == []


def test_instances_are_not_taken_for_launches_that_come_twice_as_often() -> None:
    beside = [each | {"lineage": "consumer:mail:1", "started_ms": each["started_ms"] + 1} for each in launches()]
    both = sorted([*launches(), *beside], key=lambda each: -each["started_ms"])
    (group,) = groups_of(both, NOW, expected_as_set())
    assert group.period == MINUTE


def test_a_queue_that_was_given_up_is_not_missed_for_ever() -> None:
    new, old = launches(queues=["new"]), launches(ago=2 * DAY, queues=["old"])
    queues = [queue_facts("new"), queue_facts("old")]
    assert names(facts(queues=queues, ledger=[*new, *old])) == []
    assert names(facts(queues=[queue_facts("new"), queue_facts("old", scheduled=1)], ledger=[*new, *old])) == [
        "launch_absent"
    ]
    named = expected_as_set(queues=("old",), period=MINUTE)
    assert names(facts(queues=queues, ledger=[*new, *old], expected=named)) == ["launch_absent"]
    assert names(facts(queues=queues, ledger=[*new, *launches(ago=HOUR, queues=["old"])])) == ["launch_absent"]


def test_a_queue_that_nobody_ever_served_is_found_if_it_has_messages() -> None:
    assert names(facts(queues=[queue_facts("mail"), queue_facts("other")])) == []
    (found,) = findings_of(facts(queues=[queue_facts("mail"), queue_facts("other", ready=2, scheduled=3)]))
    assert (found.name, found.value) == ("queue_unserved", "2 ready, 3 scheduled")


def test_where_no_launch_ever_ran_the_remedy_is_a_crontab_and_not_the_configuration() -> None:
    queues = [queue_facts("default", ready=1), queue_facts("mail", scheduled=2)]
    movers = launches(queues=(), role="mover")
    for ledger in ([], movers):
        (found,) = findings_of(facts(queues=queues, ledger=ledger))
        assert found.subject == "default,mail"
        assert str(found) == (
            "no launch has run yet: 1 ready, 2 scheduled in queues default, mail; 'pollconsumer init cron --install' "
            "has cron start one each minute"
        )
    (fewer,) = findings_of(facts(queues=queues[:1], ledger=[]))
    assert fewer.what == found.what  # so a message to another queue ends no alarm
    assert names(facts(queues=[queue_facts("default")], ledger=[])) == []


@pytest.mark.parametrize(
    ("configured", "queue", "adds"),
    [((), "default", False), ((), "mail", True), (("mail",), "mail", False), (("mail",), "default", True)],
)
def test_a_queue_that_the_configuration_serves_need_not_be_added_to_it(
    configured: tuple[str, ...], queue: str, adds: bool
) -> None:
    expected = expected_as_set(queues=configured, period=MINUTE)
    slow = launches(queues=["slow"])
    (found,) = findings_of(
        facts(queues=[queue_facts("slow"), queue_facts(queue, ready=1)], ledger=slow, expected=expected)
    )
    assert found.name == "queue_unserved"
    assert (" too, or name it in consumer.queues with the others; 'pollconsumer init" in found.fix) is adds
    assert found.fix.startswith(f"start 'pollconsumer run --queue {queue}' too")


@pytest.mark.parametrize(("platform", "advised"), [("", True), ("cron", True), ("systemd", False)])
def test_only_where_cron_may_start_launches_its_lines_are_to_be_written_anew(platform: str, *, advised: bool) -> None:
    slow = launches(queues=["slow"], platform=platform)
    (found,) = findings_of(facts(queues=[queue_facts("slow"), queue_facts("mail", ready=1)], ledger=slow))
    assert ("init cron --install" in found.fix) is advised


@pytest.mark.parametrize(("platform", "advised"), [("", True), ("cron", False), ("systemd", False)])
def test_of_launches_that_a_person_started_doctor_says_how_cron_starts_them(platform: str, advised: bool) -> None:
    (found,) = findings_of(facts(ledger=launches(ago=HOUR, platform=platform)))
    assert found.name == "launch_absent"
    assert found.fix.endswith("; 'pollconsumer init cron --install' has cron start it") is advised


def test_a_handler_that_no_launch_has_is_found() -> None:
    (found,) = findings_of(facts(queues=[queue_facts("mail", parked={"report": 4})]))
    assert (found.name, found.subject, found.value) == ("handler_unknown", "report", "4 messages wait in queue mail")


@pytest.mark.parametrize(
    ("margin", "fields", "handoff", "said"),
    [
        (29.6, {}, HandOff.DEADLINE, '29.6s, since handlers take long; consumer.handoff = "baton", or shorter'),
        (29.6, {"launcher": "queue"}, HandOff.BATON, "29.6s, since handlers take long; a lower consumer.tolerance"),
        (29.6, {}, HandOff.BATON, None),
        (29.6, {"stop_reason": "empty"}, HandOff.DEADLINE, None),
        (11.9, {}, HandOff.DEADLINE, None),
    ],
)
def test_time_that_launches_leave_unserved_is_named_with_what_helps_and_is_no_finding(
    margin: float, fields: dict[str, Any], handoff: HandOff, said: str | None
) -> None:
    of = facts(
        ledger=launches(margin_seconds=margin, **fields),
        expected=expected_as_set(period=MINUTE)._replace(handoff=handoff),
    )
    lines = [*unserved_times(of)]
    assert names(of) == []
    assert len(lines) == (said is not None)
    if said is not None:
        begun = "unserved by launches of mail: 49% of each 1m: launches take no new message in their last "
        assert lines[0].startswith(begun + said)


def test_launches_much_shorter_than_their_period_are_named() -> None:
    of = facts(ledger=launches(), expected=expected_as_set(period=5 * MINUTE)._replace(window=60.0))
    (line,) = unserved_times(of)
    assert line.startswith("unserved by launches of mail: 80% of each 5m: a launch ends after 1m, and the next one ")


def test_two_launches_or_launches_of_another_configuration_tell_nothing_of_unserved_time() -> None:
    wide = launches(margin_seconds=30.0, count=2)
    assert [*unserved_times(facts(ledger=wide))] == []
    others = expected_as_set(queues=("other",), period=MINUTE)
    assert [*unserved_times(facts(ledger=launches(margin_seconds=30.0), expected=others))] == []


def test_a_pause_that_may_be_forgotten_is_found() -> None:
    paused = queue_facts("mail", ready=1, oldest_ready=25 * 3600, paused=True)
    assert names(facts(queues=[paused])) == ["paused"]
    assert (
        names(facts(queues=[queue_facts("mail", ready=1, oldest_ready=25 * 3600, paused=True, resumes_in_seconds=9.0)]))
        == []
    )
    assert names(facts(queues=[queue_facts("mail", ready=1, oldest_ready=23 * 3600, paused=True)])) == []
    assert names(facts(queues=[queue_facts("mail", ready=1, paused=True)])) == []


def test_a_paused_handler_whose_messages_wait_is_found_after_a_day() -> None:
    system = facts(queues=[queue_facts("mail", parked={"report": 4})])
    assert names(system._replace(paused_handlers={"report": 23 * 3600.0})) == []
    (found,) = findings_of(system._replace(paused_handlers={"report": 25 * 3600.0}))
    assert (found.name, found.subject, found.what) == ("paused", "report", "handler report is paused")
    assert found.fix == "'pollconsumer handler resume report' ends the pause"


def test_an_order_key_that_is_held_is_named_with_its_head_and_the_way_to_let_it_go_on() -> None:
    held = HeldOrder("customer 7", "abc", newer=False, waiting=3, first=90.0, others=2)
    (found,) = findings_of(facts(queues=[queue_facts("mail", held=held)]))
    assert (found.name, found.subject) == ("order_held", "mail")
    assert str(found) == (
        "order key customer 7 of queue mail is held by dead letter abc: 3 messages behind it, the first for 1m 30s; "
        "2 more keys; 'pollconsumer dead redrive abc', or 'dead purge', lets them go on"
    )
    newer = held._replace(newer=True)
    assert names(facts(queues=[queue_facts("mail", held=newer)])) == []
    assert names(facts(queues=[queue_facts("mail", held=newer._replace(first=601.0))])) == ["order_held"]


def test_a_queue_that_is_behind_is_found_unless_it_is_paused() -> None:
    assert names(facts(queues=[queue_facts("mail", ready=1, oldest_ready=590)])) == []
    assert names(facts(queues=[queue_facts("mail", ready=1, oldest_ready=610)])) == ["oldest_ready"]
    assert names(facts(queues=[queue_facts("mail", ready=1, oldest_ready=610, paused=True)])) == []
    hourly = launches(every=HOUR)
    assert names(facts(queues=[queue_facts("mail", ready=1, oldest_ready=HOUR)], ledger=hourly)) == []


def test_a_queue_with_an_alarm_of_its_own_is_behind_by_that_whether_launches_come_or_not() -> None:
    expected = expected_as_set(period=MINUTE, wait_alarms={"mail": 120.0})
    behind = [queue_facts("mail", ready=1, oldest_ready=121)]
    assert names(facts(queues=behind, expected=expected)) == ["oldest_ready"]
    assert names(facts(queues=[queue_facts("mail", ready=1, oldest_ready=119)], expected=expected)) == []
    assert names(facts(queues=[queue_facts("mail", ready=1, oldest_ready=121, paused=True)], expected=expected)) == []
    assert names(facts(queues=behind, expected=expected, ledger=launches(ago=HOUR))) == [
        "oldest_ready",
        "launch_absent",
    ]
    longer = expected._replace(wait_alarms={"mail": HOUR})
    assert names(facts(queues=[queue_facts("mail", ready=1, oldest_ready=1200)], expected=longer)) == []


def test_a_handler_beyond_its_alarms_is_found_for_as_long_as_a_dead_letter() -> None:
    alarms = {"render": {"slower_than": 600.0, "faster_than": 1.0}}
    expected = expected_as_set(period=MINUTE, duration_alarms=alarms, recent=HOUR)
    slow, fast = ("slower_than", "render"), ("faster_than", "render")

    def found(outliers: Mapping[tuple[str, str], tuple[float, str, float]], alarms: Expected = expected) -> list[str]:
        return names(facts(expected=alarms)._replace(outliers=outliers))

    assert found({}) == []
    assert found({slow: (601.0, "m", 5.0)}) == ["handler_slow"]
    assert found({slow: (601.0, "m", 5.0), fast: (0.9, "n", 5.0)}) == ["handler_slow", "handler_fast"]
    assert found({slow: (601.0, "m", HOUR + 1)}) == []
    assert found({slow: (599.0, "m", 5.0), fast: (1.1, "n", 5.0)}) == []  # the limits have changed since
    assert found({slow: (601.0, "m", 5.0)}, expected._replace(duration_alarms={})) == []
    (finding,) = findings_of(facts(expected=expected)._replace(outliers={slow: (601.0, "m1", 5.0)}))
    assert (finding.subject, finding.what) == ("render", "handler render takes longer than 10m")
    assert finding.value == "message m1 took 10m 1s, 5s ago"


def test_a_message_that_is_handled_for_longer_than_an_alarm_is_found_before_its_end() -> None:
    expected = expected_as_set(period=MINUTE, duration_alarms={"render": {"slower_than": 600.0}}, recent=0.0)

    def found(seconds: float) -> list[str]:
        work = WorkBeyond("render", "mail", "m1", round(NOW - seconds * 1000), NOW + 1000)
        at_work = launches(count=1, stop_reason=None, working_on=[work])
        return names(facts(ledger=[*at_work, *launches()], expected=expected))

    assert (found(599), found(601)) == ([], ["handler_slow"])


@pytest.mark.parametrize("order", [[120, 1800], [1800, 120]])
@pytest.mark.parametrize("launched", [1, 2])
def test_the_oldest_message_of_a_handler_in_flight_is_held_against_its_alarm(order: list[int], launched: int) -> None:
    expected = expected_as_set(period=MINUTE, duration_alarms={"render": {"slower_than": 600.0}}, recent=0.0)
    work = [WorkBeyond("render", "mail", f"m{ago}", round(NOW - ago * 1000), NOW + 1000) for ago in order]
    each = [work] if launched == 1 else [[one] for one in work]
    in_flight = [entry for works in each for entry in launches(count=1, stop_reason=None, working_on=works)]
    (finding,) = findings_of(facts(ledger=[*in_flight, *launches()], expected=expected))
    assert finding.value == "message m1800 is handled since 30m"


def test_overdue_messages_that_launches_do_not_promote_are_found() -> None:
    assert names(facts(queues=[queue_facts("mail", overdue=1, overdue_by=590)])) == []
    assert names(facts(queues=[queue_facts("mail", overdue=1, overdue_by=610)])) == ["overdue"]


def test_a_mover_is_missed_only_where_one_was() -> None:
    gone = launches(ago=HOUR, queues=(), role="mover", margin_seconds=0.25)
    assert names(facts(ledger=[*launches(), *gone])) == ["mover_absent"]
    assert names(facts(ledger=[*launches(), *launches(queues=(), role="mover")])) == []
    given_up = launches(ago=2 * DAY, queues=(), role="mover")
    assert names(facts(ledger=[*launches(), *given_up])) == []
    due = [queue_facts("mail"), queue_facts("other", scheduled=1, overdue=1)]
    assert names(facts(queues=due, ledger=[*launches(), *given_up])) == ["queue_unserved", "mover_absent"]


def test_a_recurrence_that_nobody_defines_any_more_is_found() -> None:
    assert names(facts(recurrences=[recurrence_status("tick", "mail", ("consumer:mail",))])) == []
    assert names(facts(recurrences=[recurrence_status("tick", "mail", ("consumer:old",))])) == ["recurrence_unowned"]
    made_at_run_time = recurrence_status("tick", "mail")
    assert names(facts(recurrences=[made_at_run_time])) == []
    unreadable = [recurrence_status("tick", "mail", error="no JSON")]
    assert names(facts(recurrences=unreadable)) == ["recurrence_unreadable"]
    many = findings_of(facts(recurrences=unreadable, queues=[queue_facts("mail", unreadable=30)]))
    assert [(each.name, each.value) for each in many] == [
        ("recurrences_unreadable", "29"),
        ("recurrence_unreadable", "no JSON"),
    ]
    assert names(facts(queues=[queue_facts("mail", unreadable=1)])) == []  # this version can read it


def test_what_a_queue_sends_and_nobody_could_read_is_found() -> None:
    [found] = findings_of(facts(queues=[queue_facts("mail", quarantined=2)]))
    assert (found.name, found.subject, found.value) == ("outbox_unreadable", "mail", "2 messages")


def test_a_launch_that_was_ended_by_force_is_found_for_an_hour_or_until_the_next_one() -> None:
    killed: dict[str, Any] = {"stop_reason": "watchdog"}
    died: dict[str, Any] = {"stop_reason": "died"}
    assert names_but_of_holes(facts(ledger=[*launches(count=1, **killed), *launches(ago=65)])) == ["launches_overlong"]
    (found,) = (
        each
        for each in findings_of(facts(ledger=[*launches(count=9), *launches(ago=HOUR - 1, count=1, **died)]))
        if each.name != "launches_missed"
    )
    assert (found.name, found.value) == ("launches_died", "1 of the last 10, most recently 59m 59s ago")
    assert names_but_of_holes(facts(ledger=[*launches(), *launches(ago=HOUR, count=1, **died)])) == []
    failed: dict[str, Any] = {"stop_reason": "failed", "exit_code": 78}
    assert names_but_of_holes(facts(ledger=[*launches(count=1, **failed), *launches(ago=65)])) == ["launches_failed"]
    nightly = launches(ago=8 * HOUR, every=DAY, count=3)
    assert names_but_of_holes(facts(ledger=[{**nightly[0], **died}, *nightly[1:]])) == ["launches_died"]


def test_launches_that_are_ended_by_force_repeatedly_are_found_for_a_day() -> None:
    died: dict[str, Any] = {"stop_reason": "died"}
    assert names_but_of_holes(facts(ledger=[*launches(), *launches(ago=8 * HOUR, count=3, **died)])) == [
        "launches_died"
    ]
    assert names_but_of_holes(facts(ledger=[*launches(), *launches(ago=8 * HOUR, count=2, **died)])) == []
    assert names_but_of_holes(facts(ledger=[*launches(), *launches(ago=DAY, count=3, **died)])) == []


def test_overruns_are_found_if_they_are_twice_as_frequent_as_their_target() -> None:
    late: dict[str, Any] = {"running_seconds": 65.0}
    tenth = expected_as_set(period=MINUTE, overrun_target=0.1)
    six = [*launches(count=6, **late), *launches(ago=365, count=24)]
    assert names(facts(ledger=six, expected=tenth)) == ["overruns"]
    assert names(facts(ledger=six)) == []  # without a target any may, where the next launch waits
    assert names(facts(ledger=[*launches(count=5, **late), *launches(ago=305, count=25)], expected=tenth)) == []
    handed_over = launches(**late, stop_reason="handed_over")
    assert names(facts(ledger=handed_over, expected=tenth)) == []
    assert names(facts(ledger=launches(count=19, **late), expected=tenth)) == []
    strict = expected_as_set(period=MINUTE, overrun_target=0.01)
    assert names(facts(ledger=[*launches(count=3, **late), *launches(ago=185)], expected=strict)) == ["overruns"]


def test_a_launch_that_a_message_longer_than_its_window_has_kept_is_no_overrun() -> None:
    late: dict[str, Any] = {"running_seconds": 185.0, "longer_than_window": 1}
    tenth = expected_as_set(period=MINUTE, overrun_target=0.1)
    assert names(facts(ledger=launches(**late), expected=tenth)) == []
    assert names(facts(ledger=launches(**(late | {"longer_than_window": 0})), expected=tenth)) == ["overruns"]


def test_a_target_follows_from_the_launcher_that_the_ledger_names() -> None:
    ledger = [*launches(count=3, running_seconds=65.0), *launches(ago=185, count=27)]
    assert names(facts(ledger=ledger)) == []
    assert names(facts(ledger=[each | {"launcher": "drop"} for each in ledger])) == ["overruns"]


def test_a_grace_that_is_longer_than_a_period_is_found() -> None:
    assert names(facts(expected=expected_as_set(period=MINUTE, grace=61))) == ["grace_exceeds_period"]
    assert names(facts(expected=expected_as_set(grace=59))) == []


def test_how_often_launches_are_started_until_nothing_is_left_is_no_period() -> None:
    soon: dict[str, Any] = {"every": 6.0, "running_seconds": 0.4}
    assert names(facts(ledger=launches(**soon), expected=expected_as_set(grace=10))) == ["grace_exceeds_period"]
    by_hand = launches(**soon, stop_reason="empty")
    assert names(facts(ledger=by_hand, expected=expected_as_set(grace=10))) == []
    assert names(facts(ledger=by_hand, expected=expected_as_set(period=6.0, grace=10))) == ["grace_exceeds_period"]


def test_a_finding_is_one_line_with_what_value_and_fix() -> None:
    (found,) = findings_of(facts(queues=[queue_facts("mail", parked={"a\nb\x1b": 1})]))
    assert str(found).startswith("no launch knows handler a\\nb\\x1b: 1 message waits in queue mail; ")


def on_demand(platform: str, *, ago: float, count: int) -> list[dict[str, Any]]:
    """Launches that producers have started, one every two minutes."""
    return launches(ago=ago, every=2 * MINUTE, count=count, platform=platform, stop_reason="empty")


BY_CRON = launches(ago=10 * MINUTE, every=15 * MINUTE, count=4, platform="cron")


def newest_first(*ledgers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted((each for ledger in ledgers for each in ledger), key=lambda each: each["started_ms"], reverse=True)


@pytest.mark.parametrize("platform", ["on-demand", "on-demand-url"])
@pytest.mark.parametrize("period", [None, 15 * MINUTE])
@pytest.mark.parametrize("quiet", [5.0, 3.5 * MINUTE, 9 * MINUTE])
def test_launches_on_demand_say_nothing_about_how_often_the_crontab_launches(
    platform: str, period: float | None, quiet: float
) -> None:
    ledger = newest_first(BY_CRON, on_demand(platform, ago=quiet, count=20))
    assert names(facts(ledger=ledger, expected=expected_as_set(period=period))) == []


def test_a_crontab_that_has_stopped_is_found_beside_launches_on_demand() -> None:
    ledger = newest_first(
        launches(ago=2 * HOUR, every=15 * MINUTE, count=4, platform="cron"), on_demand("on-demand", ago=5, count=20)
    )
    (found,) = findings_of(facts(ledger=ledger))
    assert str(found) == (
        "only producers start launches (mail): the last one that was not theirs started 2h ago; "
        "add a crontab line ('pollconsumer init cron --install'): without it retries, and messages due later, wait"
    )


def test_that_there_is_no_crontab_is_found_once_one_could_have_launched() -> None:
    assert names(facts(ledger=on_demand("on-demand", ago=5, count=30))) == ["launch_absent"]
    assert names(facts(ledger=on_demand("on-demand", ago=5, count=1))) == []
    assert names(facts(ledger=on_demand("on-demand-url", ago=5, count=30))) == []  # a scheduler's may have met each


def test_a_hole_is_found_within_an_hour_of_its_end_if_it_is_as_long_as_an_absence() -> None:
    def hole(ticks: int, ago: float = 600.0) -> list[Finding]:
        """``ticks`` were missed, and launches have come again for ``ago`` seconds."""
        later = launches(count=round(ago / MINUTE))
        return findings_of(facts(ledger=[*later, *launches(ago=5 + ago + ticks * MINUTE)]))

    (found,) = hole(5)
    assert (found.name, found.subject) == ("launches_missed", "mail")
    assert found.value.startswith("5 ticks without a launch, ")
    assert [each.name for each in hole(3)] == ["launches_missed"]
    assert hole(2) == []
    assert [each.name for each in hole(5, HOUR - MINUTE)] == ["launches_missed"]
    assert hole(5, HOUR + MINUTE) == []
