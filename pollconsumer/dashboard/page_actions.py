"""What the buttons of the pages do: by the calls that commands make."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from pollconsumer.core.errors import BadData, NotFound
from pollconsumer.core.messages.message import check_handler, check_queue
from pollconsumer.dashboard.console import Console
from pollconsumer.dashboard.excerpts import Letters, Sweep, Wanted
from pollconsumer.store.reading.batch_reader import BatchStatus
from pollconsumer.store.recurrences import RecurrenceStatus
from pollconsumer.store.store import Store

T = TypeVar("T")
SWEEP_WITHIN = 20.0
"""Seconds for one action on many messages: browsers and proxies wait that long for an answer."""
_UNFINISHED = f"that took {SWEEP_WITHIN:.0f} s: press the button again for the rest"


class Made(NamedTuple):
    """What an action that has made a message has done, in words, and that message."""

    report: str
    queue: str
    id: str


class PageActions:
    def __init__(self, store: Store, console: Console, who: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._console, self._who, self._clock = store, console, who, clock
        self.actions: dict[str, Callable[[Mapping[str, str]], Iterator[str | Made]]] = {
            "redrive": self._redrive,
            "redrive_all": lambda form: self._sweep(form, self._store.actions.redrive, "redriven"),
            "purge_all": lambda form: self._sweep(form, self._store.actions.purge, "purged"),
            "cancel": self._cancel,
            "rerun": self._rerun,
            "enqueue": self._enqueue,
            "pause": lambda form: self._pause(form, paused=True),
            "resume": lambda form: self._pause(form, paused=False),
            "pause_handler": lambda form: self._pause_handler(form, paused=True),
            "resume_handler": lambda form: self._pause_handler(form, paused=False),
            "trigger": self._trigger,
            "pause_recurrence": lambda form: self._hold(form, self._store.recurrences.pause, "Paused"),
            "resume_recurrence": lambda form: self._hold(form, self._store.recurrences.resume, "Resumed"),
            "remove_recurrence": self._remove,
            "put": self._put,
            "cancel_batch": self._cancel_batch,
            "redrive_batch": self._redrive_batch,
        }

    def act(self, form: Mapping[str, str]) -> Iterator[str | Made]:
        """Do the action that the form names as ``what``, step by step. Yields what was done until then, in words.
        BadData if it cannot be done, NotFound if there is no such message, batch, queue, recurrence or action."""
        action = self.actions.get(_value(form, "what"))
        if action is None:
            raise NotFound("no such action", form["what"], f"there are: {', '.join(self.actions)}")
        return action(form)

    def _redrive(self, form: Mapping[str, str]) -> Iterator[str]:
        queue, message_id = _queue_of(form), _value(form, "id")
        if not self._store.actions.redrive(queue, [message_id]):
            raise BadData("cannot redrive", message_id, "it is no dead letter any more")
        yield f"Redriven: {message_id}"

    def _cancel(self, form: Mapping[str, str]) -> Iterator[str]:
        self._store.actions.cancel(_queue_of(form), _value(form, "id"))
        yield f"Cancelled: {form['id']}"

    def _enqueue(self, form: Mapping[str, str]) -> Iterator[Made]:
        made = self._console.enqueue(self._store, form, self._who)
        report = "Nothing is enqueued: this message has the unique key" if made.duplicate else f"Enqueued: {made.id}"
        yield Made(report, made.queue, made.id)

    def _rerun(self, form: Mapping[str, str]) -> Iterator[Made]:
        queue, message_id = _queue_of(form), _value(form, "id")
        again = self._store.reruns.rerun(queue, message_id)
        yield Made(f"This message repeats {message_id}", queue, again)

    def _pause(self, form: Mapping[str, str], *, paused: bool) -> Iterator[str]:
        name = self._store.inspector.counts(_queue_of(form)).name
        self._store.actions.pause(name, paused=paused)
        yield f"{'Paused' if paused else 'Resumed'}: {name}"

    def _pause_handler(self, form: Mapping[str, str], *, paused: bool) -> Iterator[str]:
        name = check_handler(_value(form, "name"))
        (self._store.handler_pauses.pause if paused else self._store.handler_pauses.resume)(name)
        yield f"{'Paused' if paused else 'Resumed'}: {name}"

    def _hold(self, form: Mapping[str, str], act: Callable[[RecurrenceStatus], None], what: str) -> Iterator[str]:
        act(self._store.recurrences.find(_value(form, "name")))
        yield f"{what}: {form['name']}"

    def _put(self, form: Mapping[str, str]) -> Iterator[str]:
        yield f"Put: {self._console.put(self._store, form, self._who)}"

    def _remove(self, form: Mapping[str, str]) -> Iterator[str]:
        self._store.recurrences.remove(_value(form, "name"))
        yield f"Removed: {form['name']}"

    def _trigger(self, form: Mapping[str, str]) -> Iterator[str]:
        self._store.recurrences.trigger(self._store.recurrences.find(_value(form, "name")))
        yield f"Triggered: {form['name']}"

    def _cancel_batch(self, form: Mapping[str, str]) -> Iterator[str]:
        for done, more in self._chunks(form, self._store.batch_actions.cancel):
            stopped = f", {done.asked_to_stop:,} asked to stop" if done.asked_to_stop else ""
            yield f"{_members(done.cancelled)} cancelled{stopped}{more}"

    def _redrive_batch(self, form: Mapping[str, str]) -> Iterator[str]:
        for done, more in self._chunks(form, self._store.batch_actions.redrive):
            yield f"{_members(done.redriven)} redriven{more}"

    def _chunks(self, form: Mapping[str, str], act: Callable[[BatchStatus], Iterator[T]]) -> Iterator[tuple[T, str]]:
        """Do ``act`` to a batch, one chunk after the other, within the time of an action; yields what was done until
        then, and words for what is left."""
        ends = self._clock() + SWEEP_WITHIN
        for done in act(self._store.batches.batch(_value(form, "id"), _queue_of(form))):
            yield done, f"; {_UNFINISHED}"
            if self._clock() >= ends:
                return
        yield done, ""

    def _sweep(self, form: Mapping[str, str], act: Callable[[str, list[str]], list[str]], what: str) -> Iterator[str]:
        """Do ``act`` to the dead letters that the form selects, one step after the other; yields what was done until
        then."""
        queue = _queue_of(form) if "queue" in form else None
        if queue is not None:
            self._store.inspector.counts(queue)
        ends = self._clock() + SWEEP_WITHIN
        sweep = Sweep(Letters(self._store), Wanted(queue, form.get("handler"), form.get("error")), act)
        more = True
        while more and self._clock() < ends:
            more = sweep.step()
            report = f"{sweep.done:,} dead letter{'' if sweep.done == 1 else 's'} {what}"
            if sweep.left:
                report += f", {sweep.left:,} left: record lost, or another message has the unique key"
            yield f"{report}; {_UNFINISHED}" if more else report


def _members(count: int) -> str:
    return f"{count:,} member{'' if count == 1 else 's'}"


def _value(form: Mapping[str, str], name: str) -> str:
    if name not in form:
        raise BadData(f"the form has no {name}")
    return form[name]


def _queue_of(form: Mapping[str, str]) -> str:
    return check_queue(_value(form, "queue"))
