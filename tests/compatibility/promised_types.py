"""What is promised of types: a line each, which a change of a type, or of an argument's place, makes another one.

A type that is taken has a line for each of its alternatives, so that a further one is an addition. A type that is given
has one line, since a further alternative is a value that programs do not expect.
"""

from __future__ import annotations

import inspect
import json
import re
from typing import TYPE_CHECKING, Any, is_typeddict

from tests.interface.api_page import BETWEEN_PACKAGES, GIVEN, MADE_BY_USERS, _attributes, _methods, _type, public

if TYPE_CHECKING:
    from collections.abc import Iterator

GIVEN_CLASSES = {kind.__name__: name for name, kind in GIVEN.items()}
"""A class that no program names is called by the place at which a program gets its objects."""


def api_types() -> Iterator[str]:
    for _, kinds in public():
        for name, kind in kinds.items():
            yield from types_of(name, kind)


def types_of(name: str, kind: Any) -> Iterator[str]:
    """The lines of one public name."""
    if inspect.isfunction(kind):
        yield from _of_call(name, kind)
    elif is_typeddict(kind):
        for each, hint in kind.__annotations__.items():
            yield from (f"type {name}.{each}: takes {taken}" for taken in alternatives(_type(hint)))
    elif not issubclass(kind, str):
        if name in MADE_BY_USERS:
            yield from _of_call(name, kind, gives=False)
        hidden = BETWEEN_PACKAGES.get(name, ())
        for each in sorted({*_attributes(kind), *_methods(name, kind)} - {*hidden}):
            yield from _of_member(f"{name}.{each}", kind, each)


def _of_member(name: str, kind: type, member: str) -> Iterator[str]:
    found = inspect.getattr_static(kind, member, None)
    if inspect.isfunction(found):
        yield from _of_call(name, found)
        return
    hint = inspect.signature(found.fget).return_annotation if isinstance(found, property) and found.fget else None
    if hint is None:
        hints = [inspect.get_annotations(base) for base in kind.__mro__]
        hint = next((each[member] for each in hints if member in each), inspect.Signature.empty)
    if hint is not inspect.Signature.empty:
        yield f"type {name}: gives {_named(hint)}"


def _of_call(name: str, function: Any, *, gives: bool = True) -> Iterator[str]:
    signature = inspect.signature(function)
    parameters = [each for each in signature.parameters.values() if each.name != "self"]
    for number, each in enumerate(parameters, 1):
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD):
            yield f"type {name}: argument {number} is {each.name}"
        if each.annotation is not each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            yield from (f"type {name}: {each.name} takes {taken}" for taken in alternatives(_named(each.annotation)))
    if gives and signature.return_annotation is not signature.empty:
        waits = "awaitable " if inspect.iscoroutinefunction(function) else ""
        yield f"type {name}: gives {waits}{_named(signature.return_annotation)}"


def _named(hint: Any) -> str:
    return re.sub(r"\b\w+\b", lambda word: GIVEN_CLASSES.get(word[0], word[0]), _type(hint))


def alternatives(text: str) -> list[str]:
    """``int | list[str | None]`` → ``int``, ``list[str | None]``; of a literal, its values."""
    if literal := re.fullmatch(r"Literal\[([^\[\]]*)\]", text):
        return literal[1].split(", ")
    found, depth = [""], 0
    for each in re.split(r"(\[|\]| \| )", text):
        depth += {"[": 1, "]": -1}.get(each, 0)
        if each == " | " and not depth:
            found.append("")
        else:
            found[-1] += each
    return found if len(found) == 1 else [each for part in found for each in alternatives(part)]


def http_lines(document: dict[str, Any], is_required: str) -> Iterator[str]:
    """Of an OpenAPI document: requests with the keys that they take, answers with those that they give."""

    def resolved(schema: dict[str, Any]) -> dict[str, Any]:
        while "$ref" in schema:
            found: dict[str, Any] = document
            for part in schema["$ref"].split("/")[1:]:
                found = found[part]
            schema = found
        return schema

    def content(place: dict[str, Any]) -> dict[str, Any]:
        contents: dict[str, dict[str, Any]] = place.get("content", {})
        return resolved(next((each["schema"] for each in contents.values()), {}))

    def given(schema: dict[str, Any], within: str = "") -> Iterator[str]:
        for key, each in schema.get("properties", {}).items():
            each = resolved(each)
            yield f"{within}{key} is {' or '.join(kinds(each))}"
            yield from given(each, f"{within}{key}.")

    def kinds(schema: dict[str, Any]) -> list[str]:
        if "anyOf" in schema:
            return [kind for each in schema["anyOf"] for kind in kinds(resolved(each))]
        if "enum" in schema:
            return [json.dumps(each) for each in schema["enum"]]
        named = schema.get("type", "any")
        return [named] if isinstance(named, str) else [*named]

    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if "responses" not in operation:
                continue
            request = f"http {method.upper()} {path}"
            body = content(operation.get("requestBody", {}))
            for key, each in body.get("properties", {}).items():
                yield from (f"{request}: {key} takes {kind}" for kind in kinds(resolved(each)))
                if key in body.get("required", ()):
                    yield f"{request}: {key}{is_required}"
            for status, answer in operation["responses"].items():
                yield f"{request} answers {status}"
                yield from (f"{request} answers {status}: {line}" for line in given(content(answer)))
