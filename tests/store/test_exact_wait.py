"""Waits that do not end late, on a system that ends them late."""

from __future__ import annotations

import fcntl
import os
import resource
import socket
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.store.client import own_descriptors as module
from pollconsumer.store.client.own_descriptors import END, LATE, SHORT, wait_readable

if TYPE_CHECKING:
    from collections.abc import Sequence

LEAST_SLACK = 0.00005
WAKING_UP = 0.0003


class LateSystem:
    """Ends each wait late by a part of its timeout, and a long one by the time that a processor takes to wake up, too.
    Its one descriptor is readable from ``ready`` on."""

    def __init__(self, slack: float, ready: float) -> None:
        self.now, self._slack, self._ready = 0.0, slack, ready

    def monotonic(self) -> float:
        return self.now

    def readable(self, watched: Sequence[int], timeout: float) -> Sequence[int]:
        until = self.now + timeout
        if until < self._ready:
            self.now = until + bool(timeout) * max(LEAST_SLACK, timeout * self._slack)
            self.now += WAKING_UP if timeout > SHORT else 0.0
        if self.now >= self._ready or until >= self._ready:
            self.now = max(self.now, self._ready)
            return watched
        return []


@given(
    seconds=st.floats(0, 3),
    ready=st.floats(0, 6),
    slack=st.sampled_from([0.001, 0.005]),
)
def test_a_wait_ends_when_its_time_is_over_or_a_descriptor_is_readable(
    seconds: float, ready: float, slack: float
) -> None:
    system = LateSystem(slack, ready)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "monotonic", system.monotonic)
        patch.setattr(module, "_readable", system.readable)
        found = wait_readable([3], seconds)
    if ready <= seconds:
        assert found == [3]
        assert ready <= system.now <= ready + max(LEAST_SLACK, seconds * slack) + WAKING_UP
    else:
        last = max(SHORT, seconds * LATE + END)
        assert seconds <= system.now * (1 + 1e-9)
        assert system.now <= (seconds + max(LEAST_SLACK, last * slack)) * (1 + 1e-9)


@pytest.mark.parametrize("seconds", [0.0, SHORT / 2, SHORT * 2])
def test_descriptors_that_select_does_not_take_are_waited_for(seconds: float) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip("fewer open files are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    ours, theirs = socket.socketpair()
    silent, spoken = (fcntl.fcntl(each.fileno(), fcntl.F_DUPFD, 1100) for each in (ours, theirs))
    try:
        assert not wait_readable([silent], seconds)
        ours.send(b"!")
        assert wait_readable([silent, spoken], seconds) == [spoken]
    finally:
        for descriptor in (silent, spoken, ours.detach(), theirs.detach()):
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
