"""What can be done from the pages, where `--allow-actions` allows it: the same as by a command."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pollconsumer.core.errors import BadData, NotFound
from pollconsumer.core.message import check_queue
from pollconsumer.store.connecting.wire import Wire
from pollconsumer.store.interventions import Interventions
from pollconsumer.store.reading.inspector import Inspector
from pollconsumer.store.recurrences import Recurrences


class Acting:
    def __init__(self, wire: Wire, namespace: str) -> None:
        self._inspector = Inspector(wire, namespace)
        self._interventions = Interventions(wire, namespace)
        self._recurrences = Recurrences(wire, namespace)
        self.actions: dict[str, Callable[[Mapping[str, str]], object]] = {
            "redrive": self._redrive,
            "cancel": lambda form: self._interventions.cancel(_queue(form), _value(form, "id")),
            "pause": lambda form: self._interventions.pause(self._known(form), paused=True),
            "resume": lambda form: self._interventions.pause(self._known(form), paused=False),
            "trigger": lambda form: self._recurrences.trigger(self._recurrences.find(_value(form, "name"))),
        }

    def act(self, form: Mapping[str, str]) -> None:
        """Do ``what`` of the form. BadData if it cannot be done, NotFound if there is no such message, queue,
        recurrence or action."""
        action = self.actions.get(_value(form, "what"))
        if action is None:
            raise NotFound("no such action", form["what"], f"there are: {', '.join(self.actions)}")
        action(form)

    def _redrive(self, form: Mapping[str, str]) -> None:
        queue, message_id = _queue(form), _value(form, "id")
        if not self._interventions.redrive(queue, [message_id]):
            raise BadData("cannot redrive", message_id, "it is no dead letter any more")

    def _known(self, form: Mapping[str, str]) -> str:
        return self._inspector.counts(_queue(form)).name


def _value(form: Mapping[str, str], name: str) -> str:
    if name not in form:
        raise BadData(f"the form has no {name}")
    return form[name]


def _queue(form: Mapping[str, str]) -> str:
    return check_queue(_value(form, "queue"))
