"""States are read off timestamps; and the rows that carry them say after each transition what was meant."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.core.lifecycle import State, Timestamps, durations_of, state_of
from pollconsumer.core.messages.message import NewMessage, decoded_options
from pollconsumer.store.records import rows

NEVER = Timestamps()
INSTANTS = st.integers(1, 2**48 - 1)
HANDLERS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\n"), min_size=1, max_size=20)
KEYS = st.text(st.characters(codec="utf-8"), max_size=60)
DIGESTS = st.sampled_from(["", "a1" * 8, "0a" * 8])
HEADERS = st.none() | st.dictionaries(
    st.sampled_from(["a", "trace-id", "B"]), st.sampled_from(["", "é", "x y"]), min_size=1
)


@pytest.mark.parametrize(
    ("timestamps", "state"),
    [
        (NEVER._replace(scheduled_at=1, due_at=9), State.SCHEDULED),
        (NEVER._replace(scheduled_at=1, enqueued_at=2), State.READY),
        (NEVER._replace(scheduled_at=1, enqueued_at=2, reserved_at=3), State.RESERVED),
        (NEVER._replace(scheduled_at=1, enqueued_at=2, reserved_at=3, started_at=4), State.RESERVED),
        (NEVER._replace(scheduled_at=1, failed_at=5, next_attempt_at=9), State.SCHEDULED),
        (NEVER._replace(enqueued_at=2, reserved_at=3, completed_at=5), State.COMPLETED),
        (NEVER._replace(enqueued_at=2, reserved_at=3, failed_at=5, dead_at=5), State.DEAD),
        (NEVER._replace(scheduled_at=1, due_at=9, cancelled_at=5), State.CANCELLED),
        (NEVER._replace(scheduled_at=1, enqueued_at=2, expired_at=5), State.EXPIRED),
    ],
)
def test_a_state_follows_from_the_timestamps(timestamps: Timestamps[int], state: State) -> None:
    assert state_of(timestamps) is state
    assert (timestamps.ended_at is not None) == state.has_ended


@pytest.mark.parametrize("state", [state for state in State if state.has_ended])
def test_a_message_that_has_ended_has_a_timestamp_called_after_its_state(state: State) -> None:
    ended = Timestamps(scheduled_at=1, due_at=9, enqueued_at=2, reserved_at=3)._replace(**{f"{state}_at": 5})
    assert (state_of(ended), ended.ended_at) == (state, 5)


def test_durations_are_between_phases_and_never_negative() -> None:
    done = NEVER._replace(enqueued_at=1000, reserved_at=1500, started_at=1600, completed_at=3600)
    assert durations_of(done) == {"waited_seconds": 0.5, "handled_seconds": 2.0}
    set_back = NEVER._replace(enqueued_at=1000, reserved_at=500, started_at=1600, completed_at=100)
    assert durations_of(set_back) == {"waited_seconds": 0.0, "handled_seconds": 0.0}
    assert durations_of(NEVER) == {"waited_seconds": None, "handled_seconds": None}


@st.composite
def reserved(draw: st.DrawFn) -> bytes:
    """The row of a reserved message, as the script makes it."""
    flags = draw(st.sampled_from([0, 1, 2, 3]))
    priority = draw(st.integers(-4096, 4096)) + 32768
    head = struct.pack(">BBHHBB", flags, 0, priority, draw(st.integers(1, 65535)), 0, draw(st.integers(0, 255)))
    fence, at, scheduled, due, enqueued, failed = (draw(INSTANTS) for _ in range(6))
    instants = [
        fence,
        at,
        0,
        0,
        scheduled,
        draw(st.sampled_from([0, due])),
        enqueued,
        draw(st.sampled_from([0, failed])),
        0,
    ]
    return head + b"".join(map(rows.pack6, instants)) + draw(HANDLERS).encode()


def unchanged(row: bytes) -> tuple[object, ...]:
    """What no transition touches."""
    read = rows.read_row(row)
    return read.handler, read.priority, read.generation, read.timestamps.scheduled_at, read.timestamps.due_at, len(row)


@given(reserved())
def test_a_reserved_row_reads_as_reserved(row: bytes) -> None:
    assert state_of(rows.read_row(row).timestamps) is State.RESERVED
    assert rows.read_row(row).attempts == rows.attempts(row)


@given(reserved(), INSTANTS, INSTANTS)
def test_a_completed_row_adds_when_it_started_and_ended(row: bytes, started: int, ended: int) -> None:
    after = rows.completed(row, started, ended)
    handler = rows.read_row(row).handler
    before, read = rows.read_row(row), rows.read_row(after, rows.bare_record(row))
    assert state_of(read.timestamps) is State.COMPLETED
    assert read == before._replace(
        timestamps=before.timestamps._replace(started_at=started, completed_at=ended), handler=handler
    )


@given(reserved(), INSTANTS, st.booleans(), st.sampled_from(["", "due", "failed", "promoted"]))
def test_a_completed_row_is_short_if_it_was_ready_at_once_never_failed_and_keeps_its_record(
    row: bytes, at: int, large: bool, later: str
) -> None:
    accepted, never = row[rows.SCHEDULED : rows.DUE], rows.NEVER
    due, ready, failed = (
        row[rows.FENCE : rows.RESERVED] if later == each else b"" for each in ("due", "promoted", "failed")
    )
    row = b"%b%b%b%b%b%b%b" % (
        bytes([row[0] & ~rows.LARGE | (rows.LARGE if large else 0)]),
        row[1 : rows.DUE],
        due or never,
        ready or accepted,
        failed or never,
        never,
        row[rows.HANDLER :],
    )
    fence = row[rows.FENCE : rows.RESERVED]
    usual = not large and (later == "" or fence == (accepted if later == "promoted" else never))
    after = rows.completed(row, at, at)
    assert len(after) == (rows.DUE if usual else len(row))
    read = rows.read_row(after, rows.bare_record(row))
    assert read == rows.read_row(row)._replace(timestamps=read.timestamps)
    assert read.timestamps == rows.read_row(row).timestamps._replace(started_at=at, completed_at=at)


@given(reserved(), INSTANTS, INSTANTS)
def test_a_dead_row_adds_when_it_started_and_failed(row: bytes, started: int, failed: int) -> None:
    after = rows.dead(row, started, failed)
    before, read = rows.read_row(row), rows.read_row(after)
    assert state_of(read.timestamps) is State.DEAD
    assert read.timestamps == before.timestamps._replace(started_at=started, failed_at=failed, dead_at=failed)
    assert (unchanged(after), read.attempts, after[0]) == (unchanged(row), before.attempts, row[0])


@given(reserved(), INSTANTS)
def test_a_retrying_row_is_scheduled_again_with_its_attempt_counted(row: bytes, failed: int) -> None:
    after = rows.retrying(row, failed)
    before, read = rows.read_row(row), rows.read_row(after)
    assert state_of(read.timestamps) is State.SCHEDULED
    assert read.timestamps == before.timestamps._replace(reserved_at=None, enqueued_at=None, failed_at=failed)
    assert (unchanged(after), read.attempts) == (unchanged(row), before.attempts)


@given(reserved())
def test_a_released_row_is_ready_again_as_if_it_had_not_been_reserved(row: bytes) -> None:
    after = rows.released(row)
    before, read = rows.read_row(row), rows.read_row(after)
    assert state_of(read.timestamps) is State.READY
    assert read.timestamps == before.timestamps._replace(reserved_at=None)
    assert (unchanged(after), read.attempts) == (unchanged(row), before.attempts - 1)


@given(reserved())
def test_a_parked_row_is_scheduled_uncharged_and_says_that_it_is_parked(row: bytes) -> None:
    after = rows.parked(row)
    before, read = rows.read_row(row), rows.read_row(after)
    assert state_of(read.timestamps) is State.SCHEDULED
    assert read.timestamps == before.timestamps._replace(reserved_at=None, enqueued_at=None)
    assert (unchanged(after), read.attempts, read.parked) == (unchanged(row), before.attempts - 1, True)


@given(reserved(), INSTANTS)
def test_the_fence_stays_in_the_row_through_every_transition(row: bytes, at: int) -> None:
    settled = [rows.completed(row, at, at), rows.dead(row, at, at), rows.retrying(row, at)]
    for after in [*settled, rows.released(row), rows.parked(row)]:
        assert rows.fence(after) == rows.fence(row)


@given(
    HANDLERS,
    st.binary(),
    st.integers(-4096, 4096),
    KEYS,
    KEYS,
    INSTANTS,
    DIGESTS,
    HEADERS,
    st.sampled_from([0, 1, 10**12]),
    st.sampled_from([("", ""), ("", ""), ("k", ""), ("é", "60/1h")]),
)
def test_a_record_gives_back_what_it_was_made_of(
    handler: str,
    payload: bytes,
    priority: int,
    key: str,
    concurrency_key: str,
    accepted: int,
    digest: str,
    headers: dict[str, str] | None,
    lifetime: int,
    rate: tuple[str, str],
) -> None:
    message = NewMessage("m", "q", handler, payload, priority, key=key, concurrency_key=concurrency_key)
    message = message._replace(digest=digest, headers=headers, lifetime=lifetime, rate_key=rate[0], rate=rate[1])
    sent = rows.new_record(message)
    record = sent[:4] + rows.pack6(accepted) + sent[4:]
    *stored, options, expires, continuation = rows.content(record)
    assert stored == [handler, payload]
    assert (expires, continuation) == (lifetime, b"")
    assert (decoded_options(options)[0].headers if options else None) == headers
    assert record[:1] == (b"B" if digest or headers or lifetime or rate[0] else b"A")
    read = rows.read_record(record)
    assert (read.handler, read.priority, read.attempts) == (handler, priority, 0)
    assert (read.timestamps.enqueued_at, state_of(read.timestamps)) == (accepted, State.READY)
    assert bool(record[1] & rows.UNIQUE_KEY) == bool(key)
    assert bool(record[1] & rows.CONCURRENCY_KEY) == bool(concurrency_key)
