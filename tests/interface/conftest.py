"""A command line, an application, and a sandbox for it, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pollconsumer import PollConsumer
from pollconsumer.interface import cli
from pollconsumer.testing import Sandbox


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Exit code, standard output and standard error of a command line in this process."""

    def run_arguments(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(arguments)
        return code, *capsys.readouterr()

    return run_arguments


@pytest.fixture
def app() -> PollConsumer:
    return PollConsumer()


@pytest.fixture
def sandbox(app: PollConsumer) -> Iterator[Sandbox]:
    with Sandbox(app) as sandbox:
        yield sandbox
