"""What makes handlers of functions, as type checkers see it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from pollconsumer.interface.api.handler_function import HandlerFunction
from pollconsumer.runtime.handling.context import Context

P = ParamSpec("P")
R = TypeVar("R")


class Register(Protocol):
    """Makes a handler of a function. Messages take the function's parameters, without a leading context."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> HandlerFunction[P, Concatenate[Context, P], Coroutine[Any, Any, R], R]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], R], /
    ) -> HandlerFunction[P, Concatenate[Context, P], R, R]: ...

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> HandlerFunction[P, P, Coroutine[Any, Any, R], R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> HandlerFunction[P, P, R, R]: ...


class BulkRegister(Protocol):
    """Makes a bulk handler of a function. Messages take arguments of any names."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> HandlerFunction[..., P, Coroutine[Any, Any, R], Any]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> HandlerFunction[..., P, R, Any]: ...
