"""Retry policies of users, which may see the error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.errors import ConfigurationError

if TYPE_CHECKING:
    from pollconsumer import PollConsumer
    from pollconsumer.testing import Sandbox


def test_a_policy_sees_what_a_handler_raised(app: PollConsumer, sandbox: Sandbox) -> None:
    class ByError:
        def delay(self, attempt: int, chance: float, error: BaseException) -> float:  # noqa: ARG002  a policy's
            return 3600 if isinstance(error, ConnectionError) else 60

    app.retry_policy("by error", ByError())

    @app.handler("fetch", retry=ByError())
    def fetch(away: bool) -> None:
        raise ConnectionError if away else ValueError

    soon, late = fetch.enqueue(away=False), fetch.using(retry="by error").enqueue(away=True)
    sandbox.run_for("30m")
    assert soon.state == "dead"
    assert late.status().attempts == 1


def test_what_takes_more_is_no_policy(app: PollConsumer) -> None:
    class Greedy:
        def delay(self, attempt: int, chance: float, error: BaseException, more: int) -> None: ...

    odd: Any = Greedy()
    with pytest.raises(ConfigurationError, match=r"delay\(attempt, chance\) or delay\(attempt, chance, error\)"):
        app.handler("x", retry=odd)
