"""Arguments of an earlier form, which a handler's ``upgrade`` turns into those of today."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from pollconsumer.core.users_code import called
from pollconsumer.runtime.handling.validation.argument_errors import BadArguments, bad_arguments
from pollconsumer.runtime.handling.validation.arguments import Arguments, Convert

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
"""Makes a payload of today's form from one that does not fit."""


class UpgradedArguments(Arguments):
    """The parameters of a function that is given ``upgrade(payload)`` where a payload does not fit."""

    def __init__(
        self,
        function: Callable[..., Any],
        converter: Callable[[Any], Convert],
        dumper: Callable[[Any], Convert] | None,
        upgrade: Upgrade,
    ) -> None:
        super().__init__(function, converter, dumper)
        self._upgrade = upgrade

    def bind(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Arguments by name. BadArguments if ``payload`` fits neither as it is nor upgraded; raises as the upgrade."""
        try:
            return super().bind(payload)
        except BadArguments:
            return super().bind(upgraded(payload, self._upgrade))

    def json_of(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments in ``payload`` for ``encode_payload``; those of an earlier form as they are. TypeError if they
        fit neither as they are nor upgraded."""
        try:
            return super().json_of(payload)
        except TypeError:
            if not self._can_be_upgraded(payload):
                raise
            return dict(payload)

    def _can_be_upgraded(self, payload: Mapping[str, Any]) -> bool:
        try:
            super().bind(upgraded(payload, self._upgrade))
        except Exception:
            return False
        return True


def upgraded(payload: Mapping[str, Any], upgrade: Upgrade) -> dict[str, Any]:
    """What ``upgrade`` makes of a copy of ``payload``. BadArguments if that is no dict."""
    given = called(upgrade, deepcopy(dict(payload)))
    if type(given) is not dict:
        raise bad_arguments([f"upgrade returned {type(given).__name__}, not a dict"])
    return given
