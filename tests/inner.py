"""The inner side of applications and handlers, for tests that look behind what users call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pollconsumer.interface.api.app import PollConsumer, calls_of
from pollconsumer.interface.api.handler_function import HandlerFunction

if TYPE_CHECKING:
    from pollconsumer.interface.api.registry import RegisteredHandler

__all__ = ["calls_of", "handler_named", "registered"]


def registered(handler: HandlerFunction[..., ..., Any, Any]) -> RegisteredHandler:
    """The handler as its application has it."""
    return handler._registered  # noqa: SLF001


def handler_named(app: PollConsumer, name: str) -> HandlerFunction[..., ..., Any, Any]:
    """The handler of that name, as its decorator returned it."""
    return HandlerFunction(calls_of(app), calls_of(app).handlers[name])
