"""Carries out the forms that enqueue messages and put recurrences. Their values are checked like those of calls in
Python, against the handlers that this process has."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pollconsumer.core import json_values
from pollconsumer.core.choices import After, Missed, Overlap
from pollconsumer.core.errors import BadData, ConfigurationError, NotFound, retelling
from pollconsumer.core.messages.codec import is_encoded
from pollconsumer.core.messages.message import LONGEST_CREATOR, check_handler
from pollconsumer.core.notation.instants import iso
from pollconsumer.core.notation.text import printable
from pollconsumer.core.users_code import refusing
from pollconsumer.dashboard.page_reader import Page
from pollconsumer.interface.api.app import PATIENCE
from pollconsumer.interface.api.handle import Handle
from pollconsumer.interface.api.recurrences import given_put
from pollconsumer.interface.api.registry import RegisteredHandler, registry
from pollconsumer.interface.api.slips import check_arguments, refuse_handler
from pollconsumer.interface.api.store_calls import AppCalls
from pollconsumer.interface.assembly.handlers import import_handlers
from pollconsumer.interface.logs.logs import log
from pollconsumer.interface.settings.model import Settings
from pollconsumer.runtime.handling.arguments import FormField
from pollconsumer.store.audit_log import demand_operator, note
from pollconsumer.store.recurrences import RecurrenceStatus
from pollconsumer.store.store import Store

ARGUMENT = "arg."
"""Prefix of the names of a form's inputs that are arguments of a handler."""
OF_MESSAGE = ("queue", "in_", "priority", "key", "order_key", "expires", "timeout", "max_attempts", "retry")
OF_RECURRENCE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("every", "cron", "timezone", "queue", "priority"), ()),
    "missed": (*Missed,),
    "overlap": (*Overlap,),
    "after": (*After,),
    **dict.fromkeys(("first", "times", "until"), ()),
    "enabled": ("true", "false"),
}
"""The fields of a recurrence's form besides name, handler and payload, each with its possible words, if it has any."""
EDITED = ("handler", "payload", "occurrence_wanted", *(each for each in OF_RECURRENCE if each != "first"))
"""The fields of a recurrence that an edit changes. Other fields, such as headers, keep their values."""
WHOLE = frozenset({"priority", "max_attempts", "times"})
"""Options that are whole numbers. Other options are text."""
ELSEWHERE = "if another program has it, name its queue"


class Console:
    """Creates and carries out forms. ``app_of``: returns the application that enqueues messages of a handler. In a site
    it is always the same one."""

    def __init__(self, app_of: Callable[[str], AppCalls]) -> None:
        self._app_of = app_of

    def handlers(self) -> list[str]:
        """The handlers, and the programs, that this process has for its store."""
        app = self._app_of("")
        names = {name for each in registry.apps if each.location == app.location for name in each.handlers}
        return sorted({*names, *app.handlers, *app.settings().commands})

    def enqueue_form(self, store: Store, given: Mapping[str, str]) -> Page:
        """The page with the form of a new message, filled in with ``given``. Values of the page: ``handler``, empty
        until one is chosen; ``handlers``: suggestions; ``known``: whether this process has the handler; ``fields``: the
        handler's parameters; ``takes_others``: whether it takes other arguments, too; ``options``: those of a
        message."""
        handler, handlers = given.get("handler", ""), self.handlers()
        known = self._known(check_handler(handler)) if handler else None
        return Page(
            now=store.inspector.now(),
            handler=handler,
            handlers=handlers,
            options=OF_MESSAGE,
            known=known is not None or handler in handlers,
            fields=() if known is None else known.arguments.form_fields(),
            takes_others=known is None or known.arguments.takes_others,
            given=given,
        )

    def enqueue(self, store: Store, form: Mapping[str, str], who: str) -> Handle[Any]:
        """Enqueue the message that a form describes, in the name of ``who``, whom the audit log names, too. BadData for
        an unknown handler without a queue, or for arguments that do not fit. Raises the errors of
        ``PollConsumer.enqueue``."""
        handler, options = given_value(form, "handler"), _options(form, OF_MESSAGE)
        app, known = self._app_of(handler), self._known(handler)
        payload = _object(form.get("payload", "")) | _arguments(known, form)
        if known is not None:
            check_arguments(known, payload, options.get("retry"))
        elif "queue" not in options and handler not in app.settings().commands:
            refuse_handler(handler, self.handlers(), ELSEWHERE)
        with retelling(TypeError, BadData):
            message = app.new_message(handler, payload, created_by=printable(who)[:LONGEST_CREATOR], **options)
        demand_operator(store.wire, store.keys, store.keys.queue(message.queue, "rows"))
        with refusing("message", handler, "a hook or the codec"):
            handle = app.enqueue_one(message)
        note(store.wire, store.keys, "enqueue", handle.queue, [handle.id])
        return handle

    def put_form(self, store: Store, given: Mapping[str, str]) -> Page:
        """The page with the form of a recurrence, filled in with ``given``; as stored, if only a name is given. Values
        of the page: ``edited``: the name to edit, or empty; ``asked``: the fields, each with its possible words."""
        edited = given.get("edited", "")
        if "what" not in given and given.get("name"):
            edited = given["name"]
            given = _as_it_stands(store.recurrences.find(edited))
        handlers = self.handlers()
        return Page(now=store.inspector.now(), edited=edited, handlers=handlers, asked=OF_RECURRENCE, given=given)

    def put(self, store: Store, form: Mapping[str, str], who: str) -> str:
        """Put the recurrence that a form describes, like `AppRecurrences.put`, for ``who``. Returns its name. An edited
        one keeps what the form lacks. BadData if a new one's name is in use; NotFound if one to edit is gone."""
        name, handler, edited = given_value(form, "name"), given_value(form, "handler"), form.get("edited")
        rule = None
        try:
            rule = store.recurrences.find(name).recurrence
        except NotFound:
            if edited == name:
                raise
        if rule is not None and edited != name:
            raise BadData("recurrence name", name, "there is one of that name: edit it, or choose another name")
        app, options, text = self._app_of(handler), _options(form, OF_RECURRENCE), form.get("payload", "")
        keeps = rule is not None and not text.strip() and is_encoded(rule.payload)
        known = None if keeps else self._known(handler)
        if known is None and not keeps and "queue" not in options and handler not in app.settings().commands:
            refuse_handler(handler, self.handlers(), ELSEWHERE)
        options |= {"handler": handler, "payload": _object(text), "created_by": printable(who)[:LONGEST_CREATOR]}
        if "enabled" in options:
            options["enabled"] = options["enabled"] == "true"
        defaults, namespace = app.defaults_of(handler), app.settings().namespace
        recurrence, first = given_put(name, known, defaults, namespace, app.codec, options)
        if rule is not None:
            changed = {field: getattr(recurrence, field) for field in EDITED}
            kept = {"payload": rule.payload, "occurrence_wanted": rule.occurrence_wanted} if keeps else {}
            recurrence = replace(rule, **changed | kept)
        store.recurrences.put([(recurrence, first)])
        return name

    def _known(self, handler: str) -> RegisteredHandler | None:
        return self._app_of(handler).known(handler)


def command_console(settings: Settings, *, imports: bool) -> Console:
    """The console of ``pollconsumer dashboard``. A message goes through the application that has its handler, if any.
    ``imports``: import the configuration's modules. If that fails, a warning says that arguments are not checked."""
    try:
        if imports:
            import_handlers(settings)
    except ConfigurationError as error:
        log.warning("%s", f"forms know no handlers, and check no arguments: {error}")
    fallback = AppCalls(None, None, None, PATIENCE)
    apps = [each for each in registry.apps if isinstance(each, AppCalls) and each.location == fallback.location]
    return Console(lambda handler: next((each for each in apps if handler in each.handlers), fallback))


def given_value(form: Mapping[str, str], name: str) -> str:
    """The value of a form's input. BadData if it is empty or missing."""
    if not form.get(name, ""):
        raise BadData(name, None, "give one")
    return form[name]


def _options(form: Mapping[str, str], names: Iterable[str]) -> Any:
    """The options among ``names`` that were filled in."""
    return {name: _whole(name, form[name]) if name in WHOLE else form[name] for name in names if form.get(name)}


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadData(name, text, "must be a whole number") from None


def _object(text: str) -> dict[str, Any]:
    """The JSON object in ``text``. Empty for empty text."""
    try:
        value = json_values.parse(text.encode() if text.strip() else b"{}")
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise BadData("payload", None, f"is no JSON object: write {json.dumps({'name': 'Ada'})}")
    return value


def _arguments(known: RegisteredHandler | None, form: Mapping[str, str]) -> dict[str, Any]:
    fields = [] if known is None else known.arguments.form_fields()
    return {each.name: _argument(each, text) for each in fields if (text := form.get(f"{ARGUMENT}{each.name}"))}


def _argument(field: FormField, text: str) -> Any:
    """A parameter's value: ``text`` as JSON, if it is JSON and the parameter takes not only text; else ``text``."""
    if field.kinds is None or not {*field.kinds} <= {str, type(None)}:
        with suppress(ValueError):
            return json_values.parse(text.encode())
    return text


def _as_it_stands(status: RecurrenceStatus) -> dict[str, str]:
    """The values of a form that, sent unchanged, would change nothing."""
    rule = status.recurrence
    if rule is None:
        return {"name": status.name, "queue": status.queue}
    payload = "" if is_encoded(rule.payload) else _written(rule.payload)
    values: dict[str, Any] = {"name": rule.name, "handler": rule.handler, "payload": payload, "first": "next"}
    values |= {"every": None if rule.every is None else f"{rule.every:.12g}s", "cron": rule.cron}
    values |= {
        name: getattr(rule, name) for name in ("timezone", "queue", "priority", "missed", "overlap", "after", "times")
    }
    values |= {"until": rule.until and iso(rule.until), "enabled": "true" if rule.enabled else "false"}
    return {name: str(value) for name, value in values.items() if value is not None}


def _written(payload: dict[str, Any]) -> str:
    """``payload`` as JSON for an input. Characters are escaped if any is invisible."""
    text = json.dumps(payload, ensure_ascii=False, indent=1)
    return text if all(each.isprintable() for each in text.split("\n")) else json.dumps(payload, indent=1)
