"""How far a message has come: stored beside the handler, and by whatever goes to the store anyway."""

from __future__ import annotations

import threading
from math import inf, nan
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.errors import BadData, StoreUnreachable
from pollconsumer.core.messages.message_steps import Progress
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.delivery import Delivery, Situation
from pollconsumer.runtime.new_messages import Defaults
from pollconsumer.runtime.session import contexts
from pollconsumer.runtime.session.contexts import ProgressReporter
from pollconsumer.store.client.replies import Unanswered
from pollconsumer.store.records import rows
from pollconsumer.store.records.reservations import CommonFields, Reservation

if TYPE_CHECKING:
    from pollconsumer.store.records.steps import Reports


class Store:
    """Fails while it is ``away``; ``stored`` is set by each try."""

    def __init__(self) -> None:
        self.reports: list[Reports] = []
        self.tried = threading.Event()
        self.away = False

    def report(self, _claim: object, reports: Reports) -> None:
        if not self.away:
            self.reports.append(reports)
        self.tried.set()
        if self.away:
            raise StoreUnreachable("store unreachable")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    store = Store()
    monkeypatch.setattr(contexts, "RedisStore", lambda *_: store)
    monkeypatch.setattr(contexts, "CARRIED_WITHIN", 0.0)
    return store


def reporting_every(seconds: float) -> ProgressReporter:
    launch: Any = SimpleNamespace(bare_wire=lambda: None, claim=None, store=SimpleNamespace(keys=SimpleNamespace()))
    launch.store.keys.namespace = "tests"
    return ProgressReporter(launch, seconds)


def reserved(name: str, queue: str = "mail") -> Reservation:
    return Reservation(CommonFields(queue, rows.BLANK, "", b"", 0, 0, 0.0), name.encode(), b"")


def test_a_thread_stores_what_nothing_else_takes_along(store: Store) -> None:
    reporting_every(0.001).report(reserved("a"), Progress(1))
    assert store.tried.wait(30)
    assert store.reports == [{"mail": {b"a": Progress(1)}}]


def test_the_last_report_of_each_message_is_taken_along_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "CARRIED_WITHIN", 3600.0)
    told = reporting_every(7200.0)
    for name, done in (("a", 1), ("b", 1), ("a", 2)):
        told.report(reserved(name), Progress(done))
    told.report(reserved("c", "other"), Progress(3))
    with told.carried() as reports:
        assert reports == {"mail": {b"a": Progress(2), b"b": Progress(1)}, "other": {b"c": Progress(3)}}
    with told.carried() as reports:
        assert reports is None
    assert not store.tried.is_set()


def test_none_is_stored_before_an_earlier_one_that_is_taken_along(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(contexts, "time", SimpleNamespace(sleep=lambda _: go_on.wait(30)))
    told = reporting_every(1.0)
    told.report(reserved("a"), Progress(1))
    with told.carried() as taken:
        told.report(reserved("a"), Progress(2))
        go_on.set()
        assert taken is not None
        store.reports.append(taken)
    assert store.tried.wait(30)
    assert [each["mail"][b"a"] for each in store.reports] == [Progress(1), Progress(2)]


def test_the_last_report_is_stored_again_once_a_store_that_was_away_is_back(store: Store) -> None:
    store.away = True
    told = reporting_every(0.001)
    told.report(reserved("a"), Progress(1))
    assert store.tried.wait(30)
    with told._storing:  # noqa: SLF001  between two tries
        store.away = False
        store.tried.clear()
    assert store.tried.wait(30)
    assert store.reports == [{"mail": {b"a": Progress(1)}}]


def test_what_could_not_be_stored_is_taken_along_with_the_end_unless_a_newer_one_is(store: Store) -> None:
    store.away = True
    told = reporting_every(0.0)
    for name, done in (("a", 1), ("b", 1), ("a", 2)):
        told.report(reserved(name), Progress(done))
    expected = {"mail": {b"a": Progress(2), b"b": Progress(1)}}

    def lose(reports: Reports | None) -> None:
        assert reports == expected
        told._reports["mail"] = {b"b": Progress(7)}  # noqa: SLF001  a handler reports meanwhile
        raise Unanswered("lost", sent=True)

    with pytest.raises(Unanswered), told.carried() as reports:
        lose(reports)
    with told.carried({"mail"}) as reports:
        assert reports == {}
    with told.carried() as reports:
        assert reports == {"mail": {b"a": Progress(2), b"b": Progress(7)}}
    with told.carried() as reports:
        assert reports is None


# What a handler may say


def context(reports: list[Progress]) -> LaunchContext:
    delivery = Delivery("n", "q", "id", "h", 1, 0, 1)
    return LaunchContext(
        delivery,
        Situation(
            lambda began, limit=60.0: began + limit,
            bool,
            lambda *_: None,
            Defaults,
            report=lambda _, each: reports.append(each),
        ),
    )


def test_a_handler_tells_how_far_it_has_come() -> None:
    told: list[Progress] = []
    given = context(told)
    given.progress(3, 10, "third of ten")
    given.progress(0.5)
    assert told == [Progress(3, 10, "third of ten"), Progress(0.5)]
    assert [str(each) for each in told] == ["3/10 third of ten", "0.5"]


@pytest.mark.parametrize(
    "said", [(nan,), (1, inf), ("3",), (True,), (None,), (10**400,), (1, 2, "x" * 201), (1, 2, b"x"), (1, 2, None)]
)
def test_what_is_no_progress_is_refused(said: Any) -> None:
    told: list[Progress] = []
    with pytest.raises(BadData, match="progress: "):
        context(told).progress(*said)
    assert told == []


def test_a_thread_that_outlives_the_attempt_reports_nothing() -> None:
    told: list[Progress] = []
    given = context(told)
    given.end()
    given.progress(1)
    given.after_settlement().progress(1)
    assert told == []
