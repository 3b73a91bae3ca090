"""The guards of the store. Each has a mark on its line, ``-- GUARD name`` or, in Python, ``# GUARD name``; a line with
several guards names them with semicolons between. A mark alone on a line marks the next line.

Without its guard, the condition of an ``if`` is false, ``except`` handles nothing, ``local x = …`` makes a nil, and any
other line is left out.
Where something else becomes of the line, ``CHANGES`` says what.
"""

from __future__ import annotations

import re
from os.path import relpath
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

STORE = Path(__file__).parents[2] / "pollconsumer" / "store"
OTHERS = ("core", "runtime", "interface")
"""Directories beside the store's that have guards of batches and steps."""
FALSE, TRUE = ("", "false"), ("", "true")
"""What the condition of the line is."""
CHANGES: dict[str, tuple[str, str]] = {
    "acquire: fence above all earlier ones": ("tonumber(last)", "0"),
    "acquire: fence above all that the launch has seen": ("tonumber(ARGV[9])", "0"),
    "acquire: held by another": TRUE,
    "repair: records of a newer version": ("not newer(record) and ", ""),
    "recurrence_actions: an occurrence of another's in the same millisecond": (
        "enqueued < 0",
        "enqueued < -1",
    ),
    "occurrences: a clock of the first day": ("math.max(0, now - INSTANTS_KEPT_MS)", "now - INSTANTS_KEPT_MS"),
    "arrive: a batch that is forgotten": ("state and ", ""),
    "arrive: a member counts once": TRUE,
    "batches: all completed": ("completed >= total and ", ""),
    "batches: all have ended": (" and completed + others >= total", ""),
    "batches: closed before it ends": ("has_batch_flag(state, BATCH_CLOSED) and ", ""),
    "batches: ended once": TRUE,
    "batches: failed once": (" and not has_batch_flag(state, CALLED_FAILED)", ""),
    "trim: an abandoned one has no total": FALSE,
    "trim: failed once, when it is shut": TRUE,
    "batches: then once": (" and not has_batch_flag(state, CALLED_THEN)", ""),
    "begin: a repeated beginning is not stale": TRUE,
    "begin: row compare": ("== row ", ""),
    "changed: booked no longer": (", BOOKED", ", WAITING"),
    "close: closed once": TRUE,
    "close_batch: its producer's members count": ("tonumber(ARGV[2])", "0"),
    "define: an absent owner keeps nothing": ("and present[other] ", ""),
    "define: an instant to come is not due": ("due <= now and ", ""),
    "define: contested from the second time": ("and times > 1 ", ""),
    "define: names that a version before did not keep": ("listed and ", ""),
    "define: one owner more": TRUE,
    "define: one owner more, by its whole name": ("'\\n' .. owner .. '\\n'", "owner"),
    "define: one that is as it was goes on": TRUE,
    "define: owners by whole names": ("'\\n' .. owner .. '\\n'", "owner"),
    "define: removed by its owner alone": (" .. owner .. '\\n'", ""),
    "define: replaced within the hour": ("or tonumber(at) < now - GOES_ON_MS ", ""),
    "define: what is due by the definition before": ("due_by(name, held, now, instant)", "nil"),
    "define: what is due stays due": (", due", ", instant"),
    "define: what is named stays": ("not named[name] and ", ""),
    "define: what stands before its first instant": ("not due or", "true or"),
    "ended: a dead letter keeps its record": ("ending ~= 'd' and ", ""),
    "ended: booked no longer": (", BOOKED", ", WAITING"),
    "ended: parked no longer": (", PARKED", ", WAITING"),
    "ended: the instant of the row": TRUE,
    "enqueue: digests of the generation before": ("redis.call('HGET', id_digests_before, id) or ", ""),
    "enqueue: expiry counts from the due time": ("math.max(now, due)", "now"),
    "enqueue: id in memory": ("younger[i] == 1 or ", ""),
    "enqueue: id in the store": ("found_rows[i] or found_records[i] or ", ""),
    "enqueue: ids of the generation before": (" or older[i] == 1", ""),
    "enqueue: received before": (" or i <= known", ""),
    "enqueue: too late for a repetition": ("now > tonumber(last)", "false"),
    "enqueue: unique key in the page": ("keys[name] or ", ""),
    "enqueue: unique key in the store": (" or holder_of(name, now)", ""),
    "enqueue_new: id of one in the store": ("== 0 then", "< 0 then"),
    "expire: a redriven message does not expire": (" and byte(row, GENERATION) == 0", ""),
    "expire: begun by its first step": (" and redis.call('HEXISTS', checkpoints, id .. '\\n1') == 0", ""),
    "expire: state": ("state == 'scheduled' or state == 'ready'", "true"),
    "expire: what has expired alone": ("<= now", ">= 0"),
    "hold: periods of the rule that waits": ("following or ", ""),
    "id_memory: a clock that went back": ("or now < began ", ""),
    "id_memory: digests last no longer": (", id_digests_before", ""),
    "id_memory: ids last no longer": ("now - began >= lasts or ", ""),
    "id_memory: ids last their time": ("now - began >= lasts", "true"),
    "id_memory: most ids of a generation": (" or size >= most", ""),
    "id_memory: two generations of digests": ("RENAME', id_digests, id_digests_before", "DEL', id_digests"),
    "id_memory: two generations of ids": ("RENAME', id_memory, id_memory_before", "DEL', id_memory"),
    "open_batch: a batch that is there": TRUE,
    "outbox: numbers of an outbox rise": ("+ 1", "* 0"),
    "settle: ends of what is stale": TRUE,
    "settle: previous by instant": TRUE,
    "settle: previous of one that was removed": ("== 1", ">= 0"),
    "settle: results of what is stale": TRUE,
    "settle: runs differ": ("be6(now)", "NEVER"),
    "step: most in flight": ("- redis.call('ZCARD', in_flight) ", ""),
    "watermarks: the watermark rises": ("before + 1, now_ms()", "before"),
    "occurrences: id of the occurrence": ("> 0", "> 4"),
    "offer: places of a newer version": ("== FLAGGED_VERSION", "== 0"),
    "promote: state": ("row and", "false and"),
    "promote: what is due alone": ("due_score(exactly)", "'+inf'"),
    "places: heads that have not ended": ("is_over and ", ""),
    "places: in order, whatever the clock shows": ("sub(key, 1, 1) == IN_ORDER and 0 or ", ""),
    "purge: dead letters alone": TRUE,
    "put: a clock that went back": ("tonumber(created) > now", "false"),
    "put: one of the same rule goes on": ("sub(held, 1, #rule) ~= rule", "true"),
    "put: one that has begun goes on": ("and count_of(name, 'enqueued') == 0 ", ""),
    "put: one that is as it was goes on": ("before .. '}' ~= definition", "true"),
    "put: one that is limited ends": ("latest and due > latest", "false"),
    "put: one that is spent stays ended": ("not most or", "true or"),
    "put: what is due by the rule before": ("due_by(name, held, now, first)", "nil"),
    "put: what is due stays due": (", due", ", first"),
    "rates: a place for each that waited": ("ledger.from + 6, at + 6", "ledger.from, at"),
    "rates: bookings end with the period": ("later_than(since, sub(held, ends + 1))", "sub(held, ends + 1)"),
    "rates: bookings of a clock that went back": ("handed, booked = '', ''", "handed = ''"),
    "rates: charges end with the period": ("later_than(since, sub(held, 9, ends))", "sub(held, 9, ends)"),
    "settle: charges of what had begun": (" and ms == 0", ""),
    "rates: most of a rate": ("ledger.most", "9999"),
    "rates: places that are booked": ("(waited and 0 or #ledger.booked / 6)", "0"),
    "recover: deaths counted": ("+ 1", "+ 0"),
    "recover: live fences": (" and not live[fence]", ""),
    "recover: orphans alone": TRUE,
    "recover: records of a newer version": (" and not newer(redis.call('HGET', records, id))", ""),
    "recur: definition compare": ("~= ARGV[9]", "== nil"),
    "recur: ends after the last of them": ("and #occurred < left ", ""),
    "recur: instant compare": ("tonumber(due) ~= tonumber(ARGV[4])", "false"),
    "recurrences: instants that a rule yields": ("and instant >= EARLIEST and instant < LATEST ", ""),
    "recurrences: most that have ended": ("MOST_ENDED", "1e9"),
    "recurrences: pause": ("== 0", ">= 0"),
    "redrive: dead letters alone": ("redis.call('ZSCORE', dead_letters, id) and ", ""),
    "redrive: generation compare": ("tonumber(ARGV[i + 1])", "255"),
    "redrive: unique key of another": ("not holder or", "true or"),
    "register: rights before a queue is known": ("#lacking == 0 and ", ""),
    "release: a launch is counted once": ("'\"stop_reason\": null'", "''"),
    "release: fence taken back": ("redis.call('HDEL', fences, ARGV[1]) ", ""),
    "release: fence taken back by its owner alone": TRUE,
    "renew: revived by its last holder alone": ("== ARGV[3]", "~= nil"),
    "replace: one in flight is not replaced": ("(state == 'scheduled' or state == 'ready')", "true"),
    "replace: one that was accepted replaces nothing": (
        "not (found_rows[1] or found_records[1]) and known == 0",
        "true",
    ),
    "reserve: attempts counted": ("(row) + 1", "(row)"),
    "reserve: id popped twice": ("seen[id] or ", ""),
    "reserve: order within a page": (" + count - 1", ""),
    "reserve: places of a concurrency key": ("taken[key] >= most", "false"),
    "reserve: state of what is popped": ("state_of(row) ~= 'ready' or ", ""),
    "reserve_one: a successor is handed over to": (", successor_waits", ""),
    "reserve_one: one with a row is not new": ("HSETNX', rows, id, row) ==", "HSET', rows, id, row) <"),
    "reserve_one: paused": ("paused, ", ""),
    "reserve_one: priorities before others": ("ready_by_priority, ", ""),
    "results: runs in which a dropped result is left": (" + 1", ""),
    "retire: owner compare": TRUE,
    "records: flags of a newer version": ("> CONTINUATION + ORDER", "> 255"),
    "redrive: redriven ones are the next of their key, in the order in which they were accepted": (
        "floor(number6(record, RECORD_SCHEDULED) / 2)",
        "FIRST_NUMBER - count_up('stood in line', 1)",
    ),
    "quarantine: instant compare": TRUE,
    "settle: a repeated completion is not stale": TRUE,
    "settle: row compare, completed": ("== row ", ""),
    "settle: what is stale is not counted": ("count - before", "size"),
    "settle: a repeated failure is not stale": TRUE,
    "settle: row compare, settled otherwise": ("== ARGV[at + 1] ", ""),
    "settle: deferred is not parked": ("has_flag(byte(row, FLAGS), PARKED)", "kind == 'park'"),
    "step: pause": ("== 0", ">= 0"),
    "trim: runs beyond a page": ("#taken < PAGE", "true"),
    "trim: the result of a later one": TRUE,
    "trim: what has not ended": ("ended ~= NEVER and ", ""),
    "trim: what is forgotten already": ("not ended or", "ended and"),
    "trim: what is kept": ("is_old(found[old + 1])", "true"),
    "undefine: others whose names begin alike": TRUE,
    "unique_keys: freed by its holder alone": ("holder == id or", "true or"),
    "unique_keys: held by another handler": ("handler == sub(key, 1, zero - 1)", "true"),
    "unique_keys: held for the queue": ("not holder", "false"),
    "unreserve: fence of the row": ("six(row, FENCE) == ARGV[3]", "true"),
    "unreserve: what the launch keeps": ("not keep[id] and ", ""),
    "unreserve: what was begun": ("not has_flag(byte(row, FLAGS), BEGUN)", "true"),
    "withdraw: owner compare": TRUE,
    "core/messages/continuation: a chain goes on after a link": (
        " and not (state is State.COMPLETED and self.links)",
        "",
    ),
    "core/retry: deferred for a week at most": (" if since_due + delay <= LONGEST_DEFERRAL else None", ""),
    "core/retry: the shortest deferral": ("max(SHORTEST_DEFERRAL, error.seconds)", "error.seconds"),
    "interface/api/batches: a batch that is closed": ("self.duplicate or ", ""),
    "interface/api/batches: a batch whose producer fails stays open": ("kind is None and ", ""),
    "interface/api/batches: a message that is no member": ("others:", "False:"),
    "interface/api/batches: fewer members than before": ("there > self._members", "False"),
    "interface/api/batches: what has ended": (
        " or (self._resumes and self._has_ended(number))",
        "",
    ),
    "interface/api/batches: what the store has not acknowledged": ("= page", "= []"),
    "runtime/handling/handler_batches: the batch grows": ("1", "0"),
    "runtime/consumer: a handler that was paused before": ("launch.leases.paused_handlers", "()"),
    "runtime/handling/bulk: errors of the messages that there are": TRUE,
    "runtime/handling/bulk: what is skipped is not in the call": (" if not skips", ""),
    "runtime/handling/handler: what is skipped": ("None if given is None else ", ""),
    "runtime/handling/handler: what is skipped, awaited": ("None if given is None else ", ""),
    "runtime/session/bulk_calls: a suspect is called alone": ("not reservation.crashes and ", ""),
    "runtime/session/bulk_calls: as many as have time": ("taken < size and ", ""),
    "runtime/session/bulk_calls: most bytes of a call": (" and (length <= MOST_BYTES or not taken)", ""),
    "runtime/session/bulk_calls: options of its own": (" and _shares_call(reservation.common.options)", ""),
    "runtime/session/bulk_calls: what is recorded alone": (" if each.reservation.begun", ""),
    "runtime/session/attempts: a call with others goes on": ("all(", "any("),
    "runtime/session/attempts: at most once is not called again": (" and not call.handler.at_most_once", ""),
    "runtime/session/settlements: at most once is not deferred": ("None if handler.at_most_once else ", ""),
    "runtime/handling/journal: a sleep counts from its first call": TRUE,
    "runtime/handling/journal: a wait counts from its first call": ("(known and known.until) or ", ""),
    "client/cluster_wire: asking": ("ASKING", "TIME"),
    "client/cluster_wire: replicas do not wait": TRUE,
    "client/cluster_wire: the fewest replicas": (
        "[*map(min, answer, before)] if isinstance(answer, list) else min(answer, before)",
        "answer",
    ),
    "client/cluster_wire: what another node may have carried out": ("len(answers) > 1", "False"),
    "client/sentinel: a replica is not written to": ('or role[:1] != [b"master"]', ""),
    "client/wire: clients of another server are left alone": (
        "self._abandoned.get(self.location, ())",
        "sum(self._abandoned.values(), [])",
    ),
    "client/wire: what a lost connection wrote": ("*(wire.mark(marker, 1000) for marker in markers), ", ""),
    "client/wire: rights of one that waits": (" if self.strict is None else (self.strict.right,)", ""),
    "queues/maintenance: another due time": (" and times.next_attempt_at not in (None, times.due_at)", ""),
    "leases: a renewal that finds less than was seen": ("before < seen", "False"),
    "queues/outbox: kept for a person before it is dropped": ("store.wire.all(quarantining)", "pass"),
    "queues/outbox: sent before it is forgotten": (
        "sent +=",
        'store.wire.all([("LREM", outbox, 1, each) for each in gone]); sent +=',
    ),
    "queues/outbox: what is left is not overtaken": ("entry._replace(number=0) if left else entry", "entry"),
    "queues/producer: a repetition has an end": ("on_repeat=bound, ", ""),
    "queues/producer: none behind one that replaces": (', "key_rule"', ', "queue"'),
    "queues/producer: what replaces is alone in its page": ("1 if rule.startswith(REPLACES) else ", ""),
    "queues/producer: rights of a producer in a queue": (", *(rights or self.rights).split(), *self.wire.rights", ""),
    "queues/redis_store: what the next lost reply reserved is released": (", on_repeat=release", ""),
    "records/reservations: a redriven message does not expire": (" and not rows.generation(self.row)", ""),
    "recurrences: none beside an unfinished one": (" or recurrence.after is After.END", ""),
    "suitability: what was merely read": ("min(seen, watermark) if self._confirmed else ", ""),
    "queues/producer: rights of one that waits for replicas": (" {strict.right}", ""),
    "queues/maintenance: rights of a launch in a queue": (", LAUNCH", ""),
    "queues/maintenance: rights to what another serves": ("self._register(queue, LAUNCH)", "pass"),
}
"""What stands once in the line, and what stands there without the guard."""

_MARK = re.compile(r"(?:^ *|  )(?:--|#) GUARD (\w.*)$")
_COMMENT = re.compile(r"(?<=\S)  (?:--|#) .*")
_CONDITION = re.compile(r"^( *(?:else|el)?if ).+?( then\b|:$)")
_HANDLES = re.compile(r"^( *except ).+?( as \w+)?:$")
_LOCAL = re.compile(r"^( *local \w+ =) .+")


class Edit(NamedTuple):
    """Of every line of ``file``, relative to pollconsumer/store, that has the mark ``guard``."""

    file: str
    guard: str
    change: tuple[str, str]


class Mutation(NamedTuple):
    name: str
    edits: tuple[Edit, ...]


def marked(text: str) -> Iterator[tuple[int, str]]:
    """The index of each line that has a mark, with each name of it."""
    for at, line in enumerate(text.split("\n")):
        if found := _MARK.search(line):
            yield from ((at + (found.start() == 0), name) for name in found[1].split("; "))


def edited(text: str, edit: Edit) -> str:
    """``text`` with its marks and without the guard. ValueError where a line does not hold what is to be changed."""
    lines = text.split("\n")
    for at, name in marked(text):
        if name == edit.guard:
            comment = _COMMENT.search(lines[at])
            code = lines[at][: comment and comment.start()]
            lines[at] = _without(code, edit) + lines[at][len(code) :]
    return "\n".join(lines)


def _without(code: str, edit: Edit) -> str:
    in_python, (old, new) = edit.file.endswith(".py"), edit.change
    if old:
        if code.count(old) != 1:
            raise ValueError(f"{edit.file}, {edit.guard}: {code.count(old)} times {old} in {code}")
        return code.replace(old, new)
    if _CONDITION.match(code):
        return _CONDITION.sub(rf"\1{new.title() if in_python else new}\2", code)
    if edit.change == TRUE:
        raise ValueError(f"{edit.file}, {edit.guard}: no condition in {code}")
    if _HANDLES.match(code):
        return _HANDLES.sub(r"\1()\2:", code)
    if _LOCAL.match(code):
        return _LOCAL.sub(r"\1 nil", code)
    return re.sub(r"\S.*", "pass" if in_python else "do end", code)


def guarded() -> list[Path]:
    """The files in which marks are looked for."""
    others = [path for name in OTHERS for path in (STORE.parent / name).rglob("*.py")]
    return sorted([*STORE.rglob("*.lua"), *STORE.rglob("*.py"), *others])


def _mutations() -> Iterator[Mutation]:
    for path in guarded():
        file = Path(relpath(path, STORE))
        place = path.stem if path.suffix == ".lua" else file.with_suffix("").as_posix().removeprefix("../")
        for guard in dict.fromkeys(name for _, name in marked(path.read_text())):
            name = f"{place}: {guard}"
            yield Mutation(name, (Edit(file.as_posix(), guard, CHANGES.get(name, FALSE)),))


MUTATIONS = tuple(_mutations())
