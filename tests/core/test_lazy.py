"""Attributes that are made when they are first asked for."""

from __future__ import annotations

import multiprocessing
from threading import Event, Thread

import pytest

from pollconsumer.core.users_code import lazy


class Asked:
    """``value`` is made once ``may_be_made`` is set."""

    def __init__(self) -> None:
        self.asked, self.may_be_made = Event(), Event()
        self.times = 0

    @lazy
    def value(self) -> object:
        """A value."""
        self.times += 1
        self.asked.set()
        self.may_be_made.wait()
        return object()


def test_it_is_made_once_for_each_instance() -> None:
    one, other = Asked(), Asked()
    for each in (one, other):
        each.may_be_made.set()
    assert one.value is one.value
    assert one.value is not other.value
    assert (one.times, other.times) == (1, 1)


def test_two_threads_that_ask_at_a_time_are_given_the_same() -> None:
    asked, found = Asked(), list[object]()
    threads = [Thread(target=lambda: found.append(asked.value)) for _ in range(2)]
    for thread in threads:
        thread.start()
    asked.may_be_made.set()
    for thread in threads:
        thread.join()
    assert found[0] is found[1]


def ask(asked: Asked) -> None:
    asked.may_be_made.set()
    assert asked.value


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_process_that_is_forked_while_a_thread_makes_one_does_not_wait_for_that_thread() -> None:
    asked, other = Asked(), Asked()
    thread = Thread(target=lambda: asked.value)
    thread.start()
    asked.asked.wait()
    child = multiprocessing.get_context("fork").Process(target=ask, args=[other])
    child.start()
    child.join(20)
    waits = child.is_alive()
    child.kill()
    child.join()
    asked.may_be_made.set()
    thread.join()
    assert not waits
    assert child.exitcode == 0
