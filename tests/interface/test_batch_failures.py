"""What a batch says of its failed members: the same in a callback and to any program."""

from __future__ import annotations

from typing import Any

from pollconsumer import Context, PollConsumer
from pollconsumer.testing import Sandbox


def test_a_failure_has_its_payload_headers_and_index_and_is_none_once_it_is_mended(
    app: PollConsumer, sandbox: Sandbox
) -> None:
    broken, told = [True], list[list[Any]]()

    @app.handler(max_attempts=1)
    def load(path: str) -> str:
        if broken[0] and path == "b.csv":
            raise ValueError("no such column")
        return path

    @app.handler
    def report(context: Context) -> None:
        assert context.batch is not None
        told.append([(each.index, each.payload, each.headers, each.error) for each in context.batch.failures()])

    with app.batch("import", ended=report.args()) as batch:
        batch.add(load.args("a.csv"))
        batch.add(load.args("b.csv").using(headers={"row": "7"}))
    sandbox.run()
    found = app.batches.get("import")
    failure = (1, {"path": "b.csv"}, {"row": "7"}, "ValueError: no such column")
    assert [(each.index, each.payload, each.headers) for each in found.failures()] == [failure[:3]]
    assert [row[:3] for row in told[0]] == [failure[:3]]
    assert "no such column" in str(told[0][0][3])
    broken[0] = False
    assert found.redrive() == 1
    sandbox.run()
    assert [*found.failures()] == []
    assert [(each.index, each.result) for each in found.results()] == [(0, "a.csv"), (1, "b.csv")]
