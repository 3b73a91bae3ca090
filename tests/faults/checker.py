"""Every invariant, and what a history has against each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults import about_batches, about_launches, about_messages, about_options, about_queues

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.faults.history import History

    Invariant = Callable[[History], Iterator[str]]

INVARIANTS: tuple[Invariant, ...] = (
    about_messages.accepted_is_accounted_for,
    about_messages.nothing_comes_from_nowhere,
    about_messages.nothing_follows_an_end,
    about_messages.completed_means_handled,
    about_messages.attempts_do_not_overlap,
    about_launches.fences_rise,
    about_messages.no_stale_write_is_accepted,
    about_messages.nothing_is_early,
    about_messages.occurrences_are_unique_and_complete,
    about_queues.unique_keys_have_one_holder,
    about_messages.attempts_count_calls,
    about_queues.every_message_stands_in_one_place,
    about_messages.payloads_are_unchanged,
    about_launches.no_process_stays,
    about_queues.first_in_is_first_out,
    about_launches.secrets_are_kept,
    about_messages.at_most_once_never_begins_twice,
    about_messages.follow_ups_come_with_the_completion,
    about_messages.checkpoints_are_kept,
    about_messages.each_step_has_one_result,
    about_messages.the_first_signal_of_a_name_holds,
    about_messages.what_was_cancelled_stays_so,
    about_messages.ends_have_their_reasons,
    about_batches.no_batch_waits_for_ever,
    about_batches.batches_count_their_members,
    about_batches.callbacks_come_once,
    about_batches.chains_go_on_link_by_link,
    about_batches.messages_of_a_call_end_as_it_says,
    about_queues.places_are_not_exceeded,
    about_queues.messages_of_an_order_key_begin_one_after_the_other,
    about_queues.quotas_hold,
    about_queues.a_paused_queue_hands_out_nothing,
    about_options.the_last_payload_is_handled,
    about_options.what_is_replaced_begins_anew,
    about_options.a_key_until_the_start_is_held_no_longer,
    about_options.what_costs_no_attempt_counts_for_none,
    about_options.what_is_skipped_is_not_handled,
    about_options.a_paused_handler_is_not_called,
    about_options.a_period_counts_from_the_end,
    about_launches.exit_codes_are_those_of_the_contract,
    about_launches.nothing_is_printed_but_warnings,
)


OF_CONTENTS: tuple[Invariant, ...] = (about_queues.every_message_stands_in_one_place,)
"""Those that hold for what the server has lost, too."""


def violations(history: History) -> list[str]:
    """One line for each, with the invariant's name."""
    kept = history.kept()
    return [
        f"{invariant.__name__}: {line}"
        for invariant in INVARIANTS
        for line in invariant(history if invariant in OF_CONTENTS else kept)
    ]
