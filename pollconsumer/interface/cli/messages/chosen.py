"""Acts on many messages, and reports what was done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pollconsumer.core.notation.text import counted
from pollconsumer.interface.cli.output import print_line, printed_as_json, progress_bar, telling_when_interrupted
from pollconsumer.store.queues.interventions import MAX_PAGE_IDS, EachPage
from pollconsumer.store.reading.message_selector import Chosen, by_queue

MANY = 1000
"""A progress bar is shown for more messages than this."""
WHY_LEFT = "already taken by a launch, or ended"


def each_queue(what: str, *acts: tuple[Chosen, Callable[[str, list[str], EachPage], list[str]]]) -> list[str]:
    """Call each act with the ids of each queue, with a progress bar if they are many. Returns the ids that were acted
    on. ``what`` names the outcome, as in ``cancelled``."""
    done: list[str] = []
    count = sum(len(chosen) for chosen, _ in acts)
    with (
        telling_when_interrupted(
            lambda: f"{len(done)} of {count} {what}, and perhaps some of the next {MAX_PAGE_IDS}", lost=True
        ),
        progress_bar(count, shown=count > MANY) as bar,
    ):

        def each_page(asked: int, part: list[str]) -> None:
            done.extend(part)
            bar.update(asked)

        for chosen, act in acts:
            for queue, ids in by_queue(chosen).items():
                act(queue, ids, each_page)
    return done


def report(what: str, done: Sequence[str], asked: Chosen, why_left: str) -> None:
    """Print how many messages were acted on, and which were left."""
    report_counts(what, len(done), sorted({message_id for _, message_id in asked} - set(done)), why_left)


def report_counts(what: str, count: int, left: Sequence[str], why_left: str) -> None:
    """`report`, where it is known how many messages were acted on, and which ids were left."""
    told: dict[str, Any] = {what: count, "left": left}
    if not printed_as_json(told):
        print_line(f"{count} {what}" + (f", {len(left)} left: {why_left}" if left else ""))


def would(what: str, count: int) -> None:
    """Print how many messages would be acted on with ``--yes``."""
    if not printed_as_json({f"would_be_{what}": count}):
        print_line(f"{counted(count, 'message')} would be {what}; give --yes")
