"""Messages and batches in the site's admin: to browse, to search by id, to cancel and to redrive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin import ShowFacets
from django.contrib.admin.views.main import ChangeList
from django.http import HttpRequest
from django.shortcuts import redirect
from django.utils.html import format_html

from pollconsumer.core.errors import NotFound, PollConsumerError
from pollconsumer.core.lifecycle import State
from pollconsumer.django.models import QueueBatch, QueueMessage
from pollconsumer.django.web_view import ACT, VIEW, may, site_app
from pollconsumer.interface.api.app import calls_of
from pollconsumer.interface.api.batches import AppBatch
from pollconsumer.interface.api.registry import registry
from pollconsumer.store.actions import MessageActions
from pollconsumer.store.audit_log import acting_as
from pollconsumer.store.reading.batch_reader import STATES
from pollconsumer.store.reading.messages import by_queue

MOST = 1000
"""Maximum number of messages, or batches, in a list of the admin."""
Act = Callable[[MessageActions, str, list[str]], list[str]]
"""Acts on the messages of a queue with the given ids. Returns the ids of those that it has acted on."""


def _by(name: str, choices: Callable[[], Iterable[str]]) -> type[admin.SimpleListFilter]:
    """A filter of the admin's list, with these ``choices``. `StoreChangeList` applies its value."""

    class RowFilter(admin.SimpleListFilter):
        title = parameter_name = name

        def lookups(self, *_: Any) -> list[tuple[str, str]]:
            return [(each, each) for each in choices()]

        def value(self) -> str | None:
            """The chosen value. None if the page's address has no value, or one that is no choice."""
            chosen: str | None = super().value()
            return chosen if chosen in {value for value, _ in self.lookup_choices} else None

        def queryset(self, _: HttpRequest, queryset: StoreRows) -> StoreRows:
            return queryset

    return RowFilter


def _queues() -> list[str]:
    return calls_of(site_app()).ask(lambda store: store.inspector.queues())


def _handlers() -> list[str]:
    known = {name for app in registry.apps for name in app.handlers}
    return sorted(known | {*calls_of(site_app()).settings().commands})


def _reporting(name: str) -> Callable[..., Any]:
    """The view ``name`` of the admin, which shows an error of the store as a message on the admin's first page."""

    def view(self: _StoreAdmin, request: HttpRequest, *args: Any, **options: Any) -> Any:
        try:
            with acting_as(request.user.get_username()):
                return getattr(super(_StoreAdmin, self), name)(request, *args, **options)
        except PollConsumerError as error:
            self.message_user(request, str(error), messages.ERROR)
            return redirect(f"{self.admin_site.name}:index")

    return view


class _StoreAdmin(admin.ModelAdmin):
    """The admin of objects that are read from the store. Only actions change them."""

    actions = ("cancel", "redrive")
    sortable_by = ()
    show_full_result_count = False
    show_facets = ShowFacets.NEVER

    def rows(self, searched: str, **chosen: str | None) -> Iterator[Any]:
        """The objects of a list. ``searched``: their id; empty for any. ``chosen``: the values of the filters."""
        raise NotImplementedError

    def get_changelist(self, _: HttpRequest, **__: Any) -> type[StoreChangeList]:
        return StoreChangeList

    def get_queryset(self, _: HttpRequest) -> StoreRows:
        return StoreRows()

    changelist_view, changeform_view, history_view, delete_view = map(
        _reporting, ("changelist_view", "changeform_view", "history_view", "delete_view")
    )

    def has_view_permission(self, request: HttpRequest, *_: Any, **__: Any) -> bool:
        return may(request.user, VIEW)

    has_module_permission = has_view_permission

    def has_act_permission(self, request: HttpRequest) -> bool:
        return may(request.user, ACT)

    def _refuse(self, *_: Any, **__: Any) -> bool:
        """Return False, since nobody may edit objects of the store. `has_act_permission` allows actions."""
        return False

    has_add_permission = has_change_permission = has_delete_permission = _refuse

    def report(self, request: HttpRequest, done: int, what: str, left: int, why: str) -> None:
        rest = f", {left} left: {why}" if left else ""
        self.message_user(request, f"{done} {what}{rest}.", messages.WARNING if left else messages.SUCCESS)


@admin.register(QueueMessage)
class MessageAdmin(_StoreAdmin):
    list_display = ("message_id", "queue", "handler", "state", "since", "attempts", "last_error")
    list_filter = (_by("state", lambda: State), _by("queue", _queues), _by("handler", _handlers))
    search_fields = ("message_id",)
    search_help_text = f"The whole id. Without one, the list has at most {MOST:,} messages: choose a state or a queue."
    exclude = ("key", "traceback")
    readonly_fields = ("lines_of_traceback",)

    @admin.display(description="traceback", empty_value="-")
    def lines_of_traceback(self, message: QueueMessage) -> str | None:
        """The traceback with its line breaks, which the admin would otherwise not show."""
        return message.traceback and format_html("<pre>{}</pre>", message.traceback)

    def rows(self, searched: str, **chosen: Any) -> Iterator[QueueMessage]:
        if searched:
            for found in calls_of(site_app()).ask(lambda store: store.inspector.with_id(searched)):
                if all(value in (None, str(getattr(found, name))) for name, value in chosen.items()):
                    yield QueueMessage.of(found)
        else:
            for handle in islice(site_app().messages(**chosen), MOST):
                assert handle.listed is not None
                yield QueueMessage.of(handle.listed)

    def get_object(self, _: HttpRequest, object_id: str, *__: Any) -> QueueMessage | None:
        queue, _, message_id = object_id.partition("/")
        try:
            return QueueMessage.of(calls_of(site_app()).look(queue, message_id))
        except NotFound:
            return None

    @admin.action(description="Cancel selected messages", permissions=["act"])
    def cancel(self, request: HttpRequest, queryset: StoreRows) -> None:
        why = "only scheduled and ready ones can be"
        self._act(request, queryset, MessageActions.cancel_all, "cancelled", why)

    @admin.action(description="Redrive selected messages", permissions=["act"])
    def redrive(self, request: HttpRequest, queryset: StoreRows) -> None:
        why = "no dead letter, or another message has the unique key"
        self._act(request, queryset, MessageActions.redrive, "redriven", why)

    def _act(self, request: HttpRequest, queryset: StoreRows, act: Act, what: str, why_left: str) -> None:
        chosen = by_queue([(each.queue, each.message_id) for each in queryset])
        done = [calls_of(site_app()).ask(lambda store: act(store.actions, *item)) for item in chosen.items()]  # noqa: B023
        count = sum(map(len, done))
        self.report(request, count, what, len(queryset) - count, why_left)


@admin.register(QueueBatch)
class BatchAdmin(_StoreAdmin):
    list_display = ("batch_id", "queue", "state", "total", "outstanding", "completed", "dead", "created_at", "ended_at")
    list_filter = (_by("state", lambda: STATES), _by("queue", _queues))
    search_fields = ("batch_id",)
    search_help_text = "The whole id."
    exclude = ("key",)

    def rows(self, searched: str, **chosen: str | None) -> Iterator[QueueBatch]:
        batches = [*self._with_id(searched)] if searched else site_app().batches
        found = (each.listed for each in batches)
        fitting = (
            each for each in found if all(value in (None, getattr(each, name)) for name, value in chosen.items())
        )
        return map(QueueBatch.of, islice(fitting, MOST))

    def get_object(self, _: HttpRequest, object_id: str, *__: Any) -> QueueBatch | None:
        return next((QueueBatch.of(each.listed) for each in self._with_id(object_id.partition("/")[2])), None)

    def _with_id(self, batch_id: str) -> Iterator[AppBatch]:
        with suppress(NotFound):
            yield site_app().batches.get(batch_id)

    @admin.action(description="Cancel members of selected batches", permissions=["act"])
    def cancel(self, request: HttpRequest, queryset: StoreRows) -> None:
        done = [site_app().batches.get(each.batch_id).cancel() for each in queryset]
        stopped = sum(each.asked_to_stop for each in done)
        self.report(request, sum(each.cancelled for each in done), "cancelled", stopped, "asked to stop")

    @admin.action(description="Redrive dead members of selected batches", permissions=["act"])
    def redrive(self, request: HttpRequest, queryset: StoreRows) -> None:
        done = sum(site_app().batches.get(each.batch_id).redrive() for each in queryset)
        self.report(request, done, "redriven", 0, "")


class StoreRows:
    """Objects read from the store, with the methods of a QuerySet that the admin's list and its actions need."""

    def __init__(self, objects: Iterable[Any] = ()) -> None:
        self._objects = list(objects)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._objects)

    def __len__(self) -> int:
        return len(self._objects)

    def __getitem__(self, which: Any) -> Any:
        return self._objects[which]

    def count(self) -> int:
        return len(self)

    def filter(self, *, pk__in: Iterable[str]) -> StoreRows:
        """The rows with these primary keys. An action calls this for the marked rows."""
        wanted = set(pk__in)
        return StoreRows(each for each in self if each.pk in wanted)

    def _clone(self) -> StoreRows:
        return self


class StoreChangeList(ChangeList):
    """A list of the admin, of the objects that the method `rows` of its ModelAdmin returns for the chosen filters."""

    def get_queryset(self, request: Any, exclude_parameters: Any = None) -> StoreRows:
        del exclude_parameters  # they serve facets, which count rows of a table
        self.filter_specs, self.has_filters, left, _, self.has_active_filters = self.get_filters(request)
        self.clear_all_filters_qs = self.get_query_string(new_params=left, remove=self.get_filters_params())
        chosen = {each.parameter_name: each.value() for each in self.filter_specs}
        return StoreRows(self.model_admin.rows(self.query.strip(), **chosen))
