"""Text of docs/reference/api.md: the public names of the API, each with its members and what they say of themselves.

Public of a class that programs are given is all that has no underscore, but for `BETWEEN_PACKAGES`.
"""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any, ForwardRef, is_typeddict

import pollconsumer
from pollconsumer import audit, dashboard, django, otel, sentry, testing, web
from pollconsumer.core.messages.message_steps import AttemptLog, Progress
from pollconsumer.interface.api.batches import AppBatch, AppBatches, Chain, LinkHandle, Messages, OpenBatch
from pollconsumer.interface.api.handler_function import Args, BoundHandler, HandlerFunction
from pollconsumer.interface.api.recurrences import AppRecurrences, PutOptions
from pollconsumer.interface.api.registry import HandlerOptions
from pollconsumer.runtime.handling.delivery import Previous
from pollconsumer.runtime.handling.handler_batches import Batch, MemberOutcome
from pollconsumer.runtime.new_messages import SendOptions
from pollconsumer.store.actions import CancelledMembers
from pollconsumer.store.reading.batch_reader import BatchCallback, BatchStatus
from pollconsumer.store.reading.messages import Message
from pollconsumer.store.records.occurrences import PreviousOccurrence
from pollconsumer.store.recurrence_actions import Occurred
from pollconsumer.store.recurrences import RecurrenceStatus
from tests.interface.api_examples import EXAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

MADE_BY_USERS = {
    *("PollConsumer", "Backoff", "RetryIn", "pollconsumer.testing.Sandbox", "pollconsumer.web.LaunchEndpoint"),
    *("pollconsumer.dashboard.DashboardEndpoint", "pollconsumer.dashboard.Visitor"),
}
"""Classes whose arguments are shown, since programs make objects of them."""
GIVEN: dict[str, Any] = {
    "app.handler(…)": HandlerFunction,
    "app.handler(…).using(…)": BoundHandler,
    "app.handler(…).args(…)": Args,
    "app.messages(…)": Messages,
    "app.batch(…)": OpenBatch,
    "app.batches": AppBatches,
    "app.batches.get(…)": AppBatch,
    "app.batches.get(…).cancel()": CancelledMembers,
    "app.batches.get(…).status()": BatchStatus,
    "app.batches.get(…).status().callbacks": BatchCallback,
    "app.chain(…)": Chain,
    "app.chain(…).enqueue()": LinkHandle,
    "app.recurrences": AppRecurrences,
    "app.recurrences.get(…)": RecurrenceStatus,
    "app.recurrences.get(…).previous": PreviousOccurrence,
    "app.recurrences.history(…)": Occurred,
    "handle.status()": Message,
    "handle.progress": Progress,
    "handle.log": AttemptLog,
    "context.previous": Previous,
    "batch.results(), batch.failures()": MemberOutcome,
}
"""Classes that no program names, by where it gets their objects."""
OPTIONS: dict[str, Any] = {
    "app.handler": HandlerOptions,
    "app.enqueue": SendOptions,
    "app.recurrences.put": PutOptions,
}
"""What is given by name, beside the arguments that are shown, by the function that takes it."""
OPTIONS_OF = {
    "PollConsumer.handler": "app.handler",
    "PollConsumer.every": "app.handler",
    "PollConsumer.enqueue": "app.enqueue",
    "PollConsumer.enqueue_async": "app.enqueue",
    "Context.enqueue": "app.enqueue",
    "app.handler(…).using": "app.enqueue",
    "app.handler(…).args(…).using": "app.enqueue",
    "app.recurrences.put": "app.recurrences.put",
    "app.recurrences.put_async": "app.recurrences.put",
}
BETWEEN_PACKAGES: dict[str, set[str]] = {
    "PollConsumerError": {"shows_trace", "traced"},
    "app.recurrences.get(…)": {"awaited", "phase_ms", "raw_name"},
    "handle.status()": {"found", "row"},
    "pollconsumer.django.PollConsumerBackend": {"check", "options_of", "settings", "validate_task"},
    "pollconsumer.testing.Launched": {"and_then"},
    "pollconsumer.testing.Sandbox": {"pause", "store_of"},
    "pollconsumer.dashboard.DashboardEndpoint": {"answer"},
    "pollconsumer.web.LaunchEndpoint": {"answer"},
}
"""Members that our own modules use of one another; no program needs them."""


ALIASES = {
    "Retrying": "RetryPolicy | ErrorPolicy | Sequence[Span]",
    "Span": "str | float | timedelta",
}
"""Names of annotations, and what they stand for: the first may have the second in it."""


def api() -> str:
    """The page."""
    parts = ["# The API\n\nMade by `python -m tests.interface.references`."]
    for head, kinds in public():
        parts += [head, *(section(name, kind) for name, kind in kinds.items())]
    return "\n\n".join(parts) + "\n"


def public() -> Iterator[tuple[str, dict[str, Any]]]:
    """The parts of the page: the head of each, and its names."""
    yield "## Names of `pollconsumer`", _names(pollconsumer, "")
    yield "## What a program is given\n\nObjects of classes that it names nowhere.", GIVEN
    options = {f"{name}: options": kind for name, kind in OPTIONS.items()}
    yield "## Options\n\nGiven by name, each of them optional where it is not said to be required.", options
    install = "`pip install 'pollconsumer[{}]'`"
    of_testing = _names(testing)
    del of_testing["pollconsumer.testing.Message"]  # it stands above
    yield f"## Names of `pollconsumer.testing`\n\n{install.format('testing')}: [testing](../testing.md).", of_testing
    yield f"## Names of `pollconsumer.django`\n\n{install.format('django')}: [Django](../django.md).", _names(django)
    yield "## Names of `pollconsumer.web`\n\n[Launches by a URL](../launches-by-url.md).", _names(web)
    of_pages = f"{install.format('dashboard')}: [dashboard](../dashboard.md)."
    yield f"## Names of `pollconsumer.dashboard`\n\n{of_pages}", _names(dashboard)
    yield "## Names of `pollconsumer.audit`\n\n[Who did what](../how-to-manage.md#who-did-what).", _names(audit)
    tracing = {f"{each.__name__}.instrument": each.instrument for each in (otel, sentry)}
    yield "## Names of `pollconsumer.otel` and `pollconsumer.sentry`\n\n[Tracing](../hooks.md#tracing).", tracing


def _names(module: ModuleType, prefix: str | None = None) -> dict[str, Any]:
    prefix = f"{module.__name__}." if prefix is None else prefix
    return {f"{prefix}{name}": getattr(module, name) for name in module.__all__}


def section(name: str, kind: Any) -> str:
    """One name, with what it says of itself, an example, and its members."""
    parts = [f"### `{name}`", *_paragraphs(kind, whole=inspect.isclass(kind))]
    if name in EXAMPLES:
        parts.append(f"```python\n{EXAMPLES[name].strip()}\n```")
    if lines := [*_members(name, kind)]:
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _members(name: str, kind: Any) -> Iterator[str]:
    if name in MADE_BY_USERS:
        yield f"- `{_called(name.rpartition('.')[2], kind)}`: one is made by this call."
    if inspect.isfunction(kind):
        return
    if is_typeddict(kind):
        for each, hint in kind.__annotations__.items():
            required = each in kind.__required_keys__ or _text(hint).startswith("Required[")
            yield f"- `{each}`: `{_type(hint)}`{', required' if required else ''}"
        return
    if issubclass(kind, str):  # an enum of words
        yield from (f"- `{each.name}`: `{each.value!r}`" for each in kind)
        return
    members = _attributes(kind) | _methods(name, kind)
    if issubclass(kind, Batch) and kind is not Batch:
        yield "- All of [`Batch`](#batch)."
        members = {each: text for each, text in members.items() if text != _methods("Batch", Batch).get(each)}
        members = {each: text for each, text in members.items() if text != _attributes(Batch).get(each)}
    yield from (text for each, text in sorted(members.items()) if each not in BETWEEN_PACKAGES.get(name, ()))


def _attributes(kind: type) -> dict[str, str]:
    """The annotated ones of the class itself, and of a class of ours above it."""
    return {
        each: f"- `{each}`: `{_type(hint)}`"
        for base in reversed(kind.__mro__)
        if base.__module__.startswith("pollconsumer")
        for each, hint in inspect.get_annotations(base).items()
        if not each.startswith("_") and each not in ("exit_code", "function")
    }


def _methods(name: str, kind: type) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in dir(kind):
        member = inspect.getattr_static(kind, each)
        ours = getattr(inspect.unwrap(getattr(member, "fget", None) or member), "__module__", "") or ""
        if each.startswith("_") or not ours.startswith("pollconsumer"):
            continue
        if isinstance(member, property):
            found[each] = f"- `{each}`: {_first(member)}"
        elif inspect.isfunction(member):
            taken = OPTIONS_OF.get(f"{name}.{each}") or OPTIONS_OF.get(f"{name.removesuffix('(…)')}(…).{each}")
            options = f" Options: those of `{taken}`." if taken else ""
            found[each] = f"- `{_called(each, member)}`: {_first(member)}{options}"
    return found


def _called(name: str, function: Any) -> str:
    """A call of it, as its signature has the arguments; `*` before those that are given by name."""
    written, by_name = [], False
    for each in inspect.signature(function).parameters.values():
        if each.name == "self":
            continue
        if each.kind is each.KEYWORD_ONLY and not by_name:
            written.append("*")
        by_name = by_name or each.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        written.append(_parameter(each))
        if each.kind is each.POSITIONAL_ONLY:
            written[-1:] = [written[-1], "/"]
    last = len(written) - 1 - written[::-1].index("/") if "/" in written else -1
    return f"{name}({', '.join(each for at, each in enumerate(written) if each != '/' or at == last)})"


def _parameter(parameter: inspect.Parameter) -> str:
    kind = parameter.kind
    stars = "*" if kind is parameter.VAR_POSITIONAL else "**" if kind is parameter.VAR_KEYWORD else ""
    default = "" if parameter.default is inspect.Parameter.empty else f"={parameter.default!r}"
    return f"{stars}{parameter.name}{default}"


def _text(hint: Any) -> str:
    """An annotation as it is written, whether its module evaluates annotations or not."""
    text = hint.__forward_arg__ if isinstance(hint, ForwardRef) else getattr(hint, "__name__", "")
    if not isinstance(hint, type | ForwardRef):
        text = str(hint)
    text = re.sub(r"\b(\w+\.)+(?=\w)", "", text)
    for alias, meaning in ALIASES.items():
        text = re.sub(rf"\b{alias}\b", meaning, text)
    return re.sub(r"^Optional\[(.*)]$", r"\1 | None", text)


def _type(hint: Any) -> str:
    return re.sub(r"^Required\[(.*)]$", r"\1", _text(hint))


def _first(thing: object) -> str:
    """The first paragraph of its docstring."""
    [first, *_] = [*_paragraphs(thing, whole=False), ""]
    return first


def _paragraphs(thing: object, *, whole: bool) -> list[str]:
    """The paragraphs of its own docstring, each in one line, as Markdown."""
    text = inspect.getdoc(thing) if inspect.getdoc(thing) != inspect.getdoc(type(thing)) else ""
    found = [" ".join(each.replace("``", "`").split()) for each in (text or "").split("\n\n") if each.strip()]
    return found if whole else found[:1]
