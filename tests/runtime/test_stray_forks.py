"""How a process learns that it is a fork."""

from __future__ import annotations

import mmap
import os

import pytest

from pollconsumer.runtime.system.stray_forks import Mark, mark_of_process


class Credulous(mmap.mmap):
    """As where an emulator accepts any advice and follows none."""

    def madvise(self, *_: int) -> None: ...


class Unadvised(mmap.mmap):
    """As of a system that cannot wipe memory."""

    def madvise(self, *_: int) -> None:
        raise OSError


def in_a_fork(mark: Mark) -> int:
    if (child := os.fork()) == 0:
        os._exit(mark[0])
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("memory", [mmap.mmap, Credulous, Unadvised])
def test_a_mark_is_found_wiped_in_a_fork_alone(memory: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmap.mmap", memory)
    mark = mark_of_process()
    assert (mark[0], in_a_fork(mark), mark[0]) == (1, 0, 1)
