"""Carries out the actions of the pages' buttons, by the same calls as commands."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from pollconsumer.core.errors import BadData, NotFound
from pollconsumer.core.messages.message import check_handler, check_queue
from pollconsumer.dashboard.console import Console, given_value
from pollconsumer.dashboard.excerpts import Excerpts, Wanted, sweep
from pollconsumer.store.reading.batch_reader import BatchStatus
from pollconsumer.store.store import Store

T = TypeVar("T")
SWEEP_WITHIN = 20.0
"""Seconds for one action on many messages. Browsers and proxies wait at least so long for an answer."""
_UNFINISHED = f"that took {SWEEP_WITHIN:.0f} s: press the button again for the rest"


Form = Mapping[str, str]


class Made(NamedTuple):
    """The result of an action that has enqueued a message: words that say so, and the message."""

    report: str
    queue: str
    id: str


Action = Callable[[Form], Iterator[str | Made]]


LEADS_TO = {
    **dict.fromkeys(("redrive", "cancel", "rerun", "enqueue"), "message"),
    **dict.fromkeys(("redrive_all", "purge_all"), "dead"),
    **dict.fromkeys(("pause_handler", "resume_handler"), "handler"),
    **dict.fromkeys(("pause_recurrence", "resume_recurrence", "put"), "recurrence"),
    **dict.fromkeys(("cancel_batch", "redrive_batch"), "batch"),
}
"""Action → the page that shows its result. Fields of the action's form complete that page's address. Other actions lead
to the first page."""


class PageActions:
    def __init__(self, store: Store, console: Console, who: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._console, self._who, self._clock = store, console, who, clock
        handlers, recurrences = store.handler_pauses, store.recurrences
        self.actions: dict[str, Action] = {
            "redrive": self._redrive,
            "redrive_all": lambda form: self._sweep(form, store.actions.redrive, "redriven"),
            "purge_all": lambda form: self._sweep(form, store.actions.purge, "purged"),
            "cancel": self._cancel,
            "rerun": self._rerun,
            "enqueue": self._enqueue,
            "pause": lambda form: self._pause(form, paused=True),
            "resume": lambda form: self._pause(form, paused=False),
            "pause_handler": _to_one("Paused", lambda name: handlers.pause(check_handler(name))),
            "resume_handler": _to_one("Resumed", lambda name: handlers.resume(check_handler(name))),
            "trigger": _to_one("Triggered", lambda name: recurrences.trigger(recurrences.find(name))),
            "pause_recurrence": _to_one("Paused", lambda name: recurrences.pause(recurrences.find(name))),
            "resume_recurrence": _to_one("Resumed", lambda name: recurrences.resume(recurrences.find(name))),
            "remove_recurrence": _to_one("Removed", recurrences.remove),
            "put": self._put,
            "cancel_batch": self._cancel_batch,
            "redrive_batch": self._redrive_batch,
        }

    def act(self, form: Form) -> Iterator[str | Made]:
        """Carry out the action that the form's field ``what`` names, in steps. Yields words for what was done so far.
        BadData if it cannot be done. NotFound if there is no such message, batch, queue, recurrence or action."""
        action = self.actions.get(given_value(form, "what"))
        if action is None:
            raise NotFound("no such action", form["what"], f"there are: {', '.join(self.actions)}")
        return action(form)

    def _redrive(self, form: Form) -> Iterator[str]:
        queue, message_id = _queue_of(form), given_value(form, "id")
        if not self._store.actions.redrive(queue, [message_id]):
            raise BadData("cannot redrive", message_id, "it is no dead letter any more")
        yield f"Redriven: {message_id}"

    def _cancel(self, form: Form) -> Iterator[str]:
        self._store.actions.cancel(_queue_of(form), given_value(form, "id"))
        yield f"Cancelled: {form['id']}"

    def _enqueue(self, form: Form) -> Iterator[Made]:
        made = self._console.enqueue(self._store, form, self._who)
        report = "Nothing is enqueued: this message has the unique key" if made.duplicate else f"Enqueued: {made.id}"
        yield Made(report, made.queue, made.id)

    def _rerun(self, form: Form) -> Iterator[Made]:
        queue, message_id = _queue_of(form), given_value(form, "id")
        again = self._store.rerun(queue, message_id)
        yield Made(f"This message repeats {message_id}", queue, again)

    def _pause(self, form: Form, *, paused: bool) -> Iterator[str]:
        name = self._store.inspector.counts(_queue_of(form)).name
        self._store.actions.pause(name, paused=paused)
        yield f"{'Paused' if paused else 'Resumed'}: {name}"

    def _put(self, form: Form) -> Iterator[str]:
        yield f"Put: {self._console.put(self._store, form, self._who)}"

    def _cancel_batch(self, form: Form) -> Iterator[str]:
        for done, more in self._chunks(form, self._store.batch_actions.cancel):
            stopped = f", {done.asked_to_stop:,} asked to stop" if done.asked_to_stop else ""
            yield f"{_members(done.cancelled)} cancelled{stopped}{more}"

    def _redrive_batch(self, form: Form) -> Iterator[str]:
        for done, more in self._chunks(form, self._store.batch_actions.redrive):
            yield f"{_members(done.redriven)} redriven{more}"

    def _chunks(self, form: Form, act: Callable[[BatchStatus], Iterator[T]]) -> Iterator[tuple[T, str]]:
        """Call ``act`` for a batch, chunk after chunk, within the time of an action. Yields its results so far, and
        words for what is left."""
        ends = self._clock() + SWEEP_WITHIN
        for done in act(self._store.batches.batch(given_value(form, "id"), _queue_of(form))):
            yield done, f"; {_UNFINISHED}"
            if self._clock() >= ends:
                return
        yield done, ""

    def _sweep(self, form: Form, act: Callable[[str, list[str]], list[str]], what: str) -> Iterator[str]:
        """Call ``act`` for the dead letters that the form selects, in steps. Yields words for what was done so far."""
        queue = _queue_of(form) if "queue" in form else None
        if queue is not None:
            self._store.inspector.counts(queue)
        ends = self._clock() + SWEEP_WITHIN
        wanted = Wanted(queue, form.get("handler"), form.get("error"))
        for done, left, more in sweep(Excerpts(self._store), wanted, act):
            report = f"{done:,} dead letter{'' if done == 1 else 's'} {what}"
            if left:
                report += f", {left:,} left: record lost, or another message has the unique key"
            yield f"{report}; {_UNFINISHED}" if more else report
            if self._clock() >= ends:
                return


def _members(count: int) -> str:
    return f"{count:,} member{'' if count == 1 else 's'}"


def _to_one(what: str, act: Callable[[str], object]) -> Action:
    """An action that calls ``act`` with the name in the form, and reports ``what`` was done."""

    def do(form: Form) -> Iterator[str]:
        act(name := given_value(form, "name"))
        yield f"{what}: {name}"

    return do


def _queue_of(form: Form) -> str:
    return check_queue(given_value(form, "queue"))
