"""The guards of the store: what is taken out of which file, by substituting one text that stands there exactly once.

Each takes out a part of its own, so that any of them can be taken out together.
"""

from __future__ import annotations

from typing import NamedTuple


class Edit(NamedTuple):
    """``file`` is relative to pollconsumer/store."""

    file: str
    old: str
    new: str


class Mutation(NamedTuple):
    name: str
    edits: tuple[Edit, ...]


def _lua(script: str, name: str, old: str, new: str) -> Mutation:
    return Mutation(f"{script.removeprefix('parts/')}: {name}", (Edit(f"lua/{script}.lua", old, new),))


def _python(module: str, name: str, old: str, new: str) -> Mutation:
    return Mutation(f"{module}: {name}", (Edit(f"{module}.py", old, new),))


_FENCE = "local refusal = refusal_of(ARGV[1], ARGV[2])"
_STILL_BOOKED = "without_flag(byte(row, FLAGS), WAITING)"
_NO_FENCE = "local refusal = nil"
_OCCURRENCE_KNOWN = (
    "  if redis.call('HEXISTS', records, id) + redis.call('HEXISTS', rows, id)"
    " + redis.call('SISMEMBER', id_memory, id)\n"
    "    + redis.call('SISMEMBER', id_memory_before, id) > 0 then return false end\n"
)

MUTATIONS: tuple[Mutation, ...] = (
    _lua(
        "release",
        "a launch is counted once",
        "redis.call('HGET', ledger, ARGV[4]) or '', '\"stop_reason\": null'",
        "'null', 'null'",
    ),
    # What a stale launch may not do
    *(
        _lua(name, "fence compare", _FENCE, _NO_FENCE)
        for name in ("step", "reserve_one", "begin", "promote", "unreserve", "checkpoint", "recur")
    ),
    _lua("parts/settle", "what is stale is not counted", "'complete', count - before,", "'complete', size,"),
    _lua("parts/settle", "row compare, completed", "if found_rows[i] == row then", "if found_rows[i] then"),
    _lua("parts/settle_otherwise", "row compare, settled otherwise", "if held == ARGV[at + 1] then", "if held then"),
    _lua("begin", "row compare", "if found == row then", "if found then"),
    _lua("begin", "a repeated beginning is not stale", "elseif found ~= new_row then", "else"),
    _lua("trim", "completions are counted once", "  redis.call('LPOP', uncounted, #waiting)\n", ""),
    _lua("trim", "completions that differ", "if waiting[i] ~= entry then", "if i > #waiting then"),
    _lua(
        "parts/settle",
        "a repeated completion is not stale",
        "if found_rows[i] ~= new_row then stale",
        "if true then stale",
    ),
    _lua(
        "parts/settle_otherwise",
        "a repeated failure is not stale",
        "elseif not held or sub(held, 1, NEXT_ATTEMPT - 1) ~= sub(row, 1, NEXT_ATTEMPT - 1) then",
        "else",
    ),
    *(
        _lua(name, "fence compare", "if redis.call('HGET', announced, ARGV[1]) ~= ARGV[2] then", "if false then")
        for name in ("set_aside", "try_again")
    ),
    _lua("announce", "a newer holder was here", "if seen and tonumber(seen) > tonumber(ARGV[2]) then", "if false then"),
    _lua("retire", "owner compare", "if redis.call('HGET', announced, ARGV[1]) == ARGV[2] then", "if true then"),
    _lua("checkpoint", "row compare", "if row ~= ARGV[4] and row ~= ARGV[5] then return 0 end", ""),
    _lua("unreserve", "fence of the row", "six(row, FENCE) == ARGV[3] and", "true and"),
    _lua("unreserve", "what the launch keeps", "not keep[id] and well_formed", "well_formed"),
    _lua("unreserve", "what was begun", "and (uncalled[id] or not has_flag(byte(row, FLAGS), BEGUN))", ""),
    _lua("unreserve", "what is given back has not begun", "without_flag(byte(row, FLAGS), BEGUN)", "byte(row, FLAGS)"),
    # One place for each message
    _lua("parts/settle", "completed leaves flight", "    redis.call('ZREM', in_flight, unpack(gone))\n", ""),
    _lua(
        "parts/settle_otherwise",
        "settled leaves flight",
        "    settled = true\n    redis.call('ZREM', in_flight, id)\n",
        "    settled = true\n",
    ),
    _lua("begin", "completed leaves flight", "  redis.call('ZREM', in_flight, unpack(gone))\n", ""),
    _lua("parts/reserve_unusual", "state of what is popped", "state_of(row) ~= 'ready' or has_flag", "has_flag"),
    _lua("parts/reserve_unusual", "id popped twice", "if seen[id] or row and", "if row and"),
    _lua("promote", "removed from the schedule", "  redis.call('ZREM', schedule, unpack(ids))\n", ""),
    _lua(
        "promote",
        "what is due alone",
        "redis.call('ZRANGEBYSCORE', schedule, '-inf', due_score(exactly),",
        "redis.call('ZRANGEBYSCORE', schedule, '-inf', '+inf',",
    ),
    _lua("promote", "state", "if row and (sub(row, ENDING, ENDING) ~=", "if false and (sub(row, ENDING, ENDING) ~="),
    _lua(
        "recover",
        "removed from flight",
        "      redis.call('ZREM', in_flight, id)\n      row =",
        "      row =",
    ),
    _lua("unreserve", "removed from flight", "  redis.call('ZREM', in_flight, id)\n", ""),
    _lua("parts/reservations", "order of reservation", "if one.at ~= other.at then return one.at < other.at end", ""),
    Mutation(
        "reserve: order within a batch",
        tuple(
            Edit("lua/parts/reserve.lua", f"hard_end + count - 1, id{next_line}", f"hard_end, id{next_line}")
            for next_line in ("\n  reserved", "\n      reserved")
        ),
    ),
    _lua(
        "parts/reserve",
        "an id that stands twice in a batch",
        "== latest\n      and not seen[id] then",
        "== latest then",
    ),
    _lua("redrive", "removed from the dead letters", "    redis.call('ZREM', dead_letters, id)\n", ""),
    _lua(
        "parts/removal",
        "cancelled leaves the schedule",
        "    redis.call('ZREM', schedule, id)\n    return\n",
        "    return\n",
    ),
    _lua("recover", "orphans alone", "if late or not valid[fence] then", "if true then"),
    _lua("recover", "live fences", " and not live[fence]", ""),
    _lua("recover", "deaths counted", "char(math.min(byte(row, CRASHES) + 1, 255))", "sub(row, CRASHES, CRASHES)"),
    _lua(
        "recover", "begun for the only time", "      if has_flag(byte(row, FLAGS), BEGUN) then", "      if false then"
    ),
    _lua(
        "parts/reserve",
        "attempts counted",
        "math.min(attempts_of(row) + 1, 65535)",
        "math.min(attempts_of(row), 65535)",
    ),
    _lua("cancel", "state", "if state ~= 'scheduled' and state ~= 'ready' then return state end", ""),
    _lua("reschedule", "state", "if state ~= 'scheduled' and state ~= 'ready' then return state end", ""),
    _lua("redrive", "generation compare", "> tonumber(ARGV[i + 1])", "> 255"),
    _lua("redrive", "dead letters alone", "redis.call('ZSCORE', dead_letters, id) and readable", "readable"),
    _lua("purge", "dead letters alone", "if redis.call('ZSCORE', dead_letters, id) then", "if true then"),
    *(
        _lua(name, "records of a newer version", "if newer(record) then return 'newer' end", "")
        for name in ("cancel", "reschedule")
    ),
    _lua(
        "parts/reserve_unusual",
        "records of a newer version",
        "elseif newer(found_records[i]) then",
        "elseif false then",
    ),
    _lua("audit", "records of a newer version", "if not newer(record) and put_in_place", "if put_in_place"),
    _lua("parts/rows", "flags of a newer version", "return byte(record, after_keys(record) - 1) ~= 0", "return false"),
    _lua(
        "parts/settle_otherwise",
        "set aside is not parked",
        "if has_flag(byte(row, FLAGS), PARKED) then",
        "if kind == 'park' then",
    ),
    _lua("parts/settle_otherwise", "expired frees its keys", "kind == 'dead' or kind == 'expire'", "kind == 'dead'"),
    _lua(
        "parts/settle_otherwise",
        "expired drops a large record",
        "      if has_flag(byte(row, FLAGS), LARGE) then dropped[#dropped + 1] = id end\n      if has_flag(byte(row",
        "      if has_flag(byte(row",
    ),
    _lua("enqueue", "expiry counts from the due time", "math.max(now, due)", "now"),
    _python("reservations", "a redriven message does not expire", " and self.generation == 0", ""),
    _lua(
        "trim",
        "dead letters that are kept",
        "if i > surplus and not (ms and tonumber(entries[2 * i]) < now - ms) then break end",
        "",
    ),
    _lua("trim", "what is kept", "is_old(found[old + 1])", "true"),
    _lua("trim", "what has not ended", "ended ~= NEVER and ", ""),
    _lua("trim", "what is forgotten already", "not ended or ", "ended and "),
    # Limits
    _lua(
        "parts/reserve_unusual",
        "places of a concurrency key",
        "has_place = taken[key] < concurrency(record)",
        "has_place = true",
    ),
    _lua("parts/reserve", "places of a concurrency key", "(not key or taken[key] < like.most) and ", ""),
    _lua("parts/settle", "places given back", "taken[key] = (number or 0) - 1", "taken[key] = number or 0"),
    _lua(
        "parts/settle_otherwise",
        "places given back",
        "taken[key] = (taken[key] or 0) - 1",
        "taken[key] = taken[key] or 0",
    ),
    _lua("parts/let_go", "places given back to those in line", "  count_places()\n  write_places()\n", ""),
    _lua(
        "parts/place_counts", "places written", "if at > 0 then redis.call('HSET', places_taken, unpack(left)) end", ""
    ),
    _lua("step", "pause", " and redis.call('EXISTS', paused) == 0", ""),
    _lua("parts/limits", "most in flight", "tonumber(most) - redis.call('ZCARD', in_flight)", "tonumber(most)"),
    _lua("parts/reserve", "quota counted", "if sixtieth then", "if false then"),
    _lua("parts/rates", "most of a rate", "< ledger.most then return false end", "< 9999 then return false end"),
    _lua("parts/rates", "places that are booked", "(waited and 0 or #ledger.booked / 6)", "0"),
    _lua("parts/rates", "bookings of those handed out", "    if waited then unbook(ledger) end\n", ""),
    _lua("parts/rates", "bookings of those that wait again", "    unbook(ledger)\n    instant, at", "    instant, at"),
    _lua("parts/rates", "the first place for who has waited", "    instant, at = first_place(ledger)\n", ""),
    _lua("parts/rates", "a place for each that waited", "ledger.from + 6, at + 6", "ledger.from, at"),
    _lua("parts/rates", "charges end with the period", "later_than(since, sub(held, 9, ends))", "sub(held, 9, ends)"),
    _lua(
        "parts/rates", "bookings end with the period", "later_than(since, sub(held, ends + 1))", "sub(held, ends + 1)"
    ),
    _lua("parts/rates", "a clock that went back", "if sub(handed, -6) > stamp then", "if false then"),
    _lua("parts/rates", "bookings of a clock that went back", "handed, booked = '', ''", "handed = ''"),
    _lua("parts/rates", "ledgers forgotten", "if #lapsed > 0 then redis.call('HDEL', rates, unpack(lapsed)) end", ""),
    _lua("parts/refunds", "charges taken back", "if sub(held, at, at + 5) == uncharged[2 * i] then", "if false then"),
    _lua("unreserve", "charges taken back", "if #uncharged > 0 and redis.call('EXISTS', rates) == 1", "if false"),
    _lua("parts/let_go", "charges taken back", "if #uncharged > 0 and redis.call('EXISTS', rates) == 1", "if false"),
    _lua(
        "reserve_one",
        "one with a row is not new",
        "redis.call('HSETNX', rows, id, row) == 0",
        "redis.call('HSET', rows, id, row) < 0",
    ),
    _lua("reserve_one", "paused", "'EXISTS', paused, ready_by", "'EXISTS', ready_by"),
    _lua("reserve_one", "priorities before others", "paused, ready_by_priority,", "paused,"),
    _lua("reserve_one", "a successor is handed over to", "ready_by_priority, successor_waits)", "ready_by_priority)"),
    _lua("reserve_one", "another is woken for what is left", "  if next_ids[2] then wake(ready_marker) end\n", ""),
    _lua("parts/write_places", "a place given up", "standing = standing + offer_places(given_up[i])", ""),
    *(
        _lua(name, "booked no longer", "without_flag(without_flag(byte(row, FLAGS), WAITING), BOOKED)", _STILL_BOOKED)
        for name in ("cancel", "reschedule")
    ),
    # Ids and unique keys
    _lua("enqueue", "id in the store", "holder = (found_rows[i] or found_records[i] or earlier", "holder = (earlier"),
    _lua("enqueue_new", "id in the store", " == 0 then return ARGV[1] end", " < 0 then return '' end"),
    _lua("enqueue_alike", "id in the store", "if found[i] then return ids[i] end", ""),
    _lua("enqueue", "id in the batch", "earlier = seen[id]", "earlier = nil"),
    _lua("enqueue", "id in memory", "younger[i] == 1 or ", ""),
    _lua("enqueue", "ids of the generation before", " or older[i] == 1", ""),
    _lua("enqueue", "digests of the generation before", " or redis.call('HGET', id_digests_before, id)", ""),
    _lua("enqueue", "received before", " or i <= known)", ")"),
    _lua("purge", "ids remembered", "  remember(forgotten)\n", ""),
    _lua("parts/occurrences", "the result of a forgotten id", "  drop_result(id)\n", ""),
    _lua("parts/results", "runs in which a dropped result is left", "or 0) or 0) + 1)", "or 0) or 0))"),
    _lua("parts/leave", "results of what is stale", "if not refused[i] then", "if true then"),
    _lua("parts/leave", "run of what is stale", "if size < before + 2 * count then", "if false then"),
    _lua("parts/leave", "runs differ", "be6(now) .. table.concat", "NEVER .. table.concat"),
    _lua("trim", "the result of a later one", "if count == 0 then", "if true then"),
    _lua("trim", "results of one id at once", "left[id] = count - 1", ""),
    _lua("trim", "results that are forgotten at once", "if #lapsed >= most then break end", ""),
    _lua("trim", "runs beyond a page", "until #taken < PAGE", "until true"),
    _lua("trim", "ids remembered", "  remember(ids)\n", ""),
    _lua("parts/id_memory", "ids last their time", "now - began >= lasts or ", "true or "),
    _lua("parts/id_memory", "ids last no longer", "now - began >= lasts or ", ""),
    _lua("parts/id_memory", "most ids of a generation", " or size >= most", ""),
    _lua("parts/id_memory", "a clock that went back", "if over or now < began then", "if over then"),
    _lua("enqueue", "a number a day ahead", "if number > (now + 86400000) * 1000 then", "if false then"),
    _lua(
        "enqueue",
        "the result of a forgotten id",
        "  for i = 1, result_count > 0 and #new_records or 0, 2 do drop_result(new_records[i]) end\n",
        "",
    ),
    _lua("enqueue", "digest compare", "earlier ~= '' and earlier ~= chosen", "false"),
    _lua("enqueue", "too late for a repetition", "now > tonumber(sub(ARGV[2], 2))", "false"),
    _lua(
        "parts/id_memory",
        "digest of a forgotten id",
        "if digest then digests",
        "if false then digests",
    ),
    _lua(
        "parts/id_memory",
        "two generations of ids",
        "redis.call('RENAME', id_memory, id_memory_before)",
        "redis.call('DEL', id_memory)",
    ),
    _lua(
        "parts/id_memory",
        "two generations of digests",
        "redis.call('RENAME', id_digests, id_digests_before)",
        "redis.call('DEL', id_digests)",
    ),
    _lua("parts/id_memory", "digests last no longer", "id_memory_before, id_digests_before)", "id_memory_before)"),
    _lua("parts/leave", "numbers of an outbox rise", "tonumber(redis.call('HGET', counters, 'sent on') or 0) + 1", "0"),
    _lua("enqueue", "unique key in the store", " or holder_of(key, now)", ""),
    _lua("enqueue", "unique key in the batch", "holder = keys[key] or ", "holder = "),
    _lua("redrive", "unique key of another", "if record and (not holder or holder == id) then", "if record then"),
    _lua("parts/let_go", "unique key freed at the end", "if #unique > 0 then free_keys(holders, unique) end", ""),
    _lua(
        "parts/unique_keys",
        "what has ended holds no key",
        "if row and sub(row, ENDING, ENDING) ~= '\\0' or not row and",
        "if false and",
    ),
    _lua(
        "parts/unique_keys",
        "held by another handler",
        "return handler == sub(key, 1, zero - 1) and id or nil",
        "return id",
    ),
    _lua("parts/unique_keys", "held for the queue", "local zero = not holder and find", "local zero = false and find"),
    _lua(
        "parts/unique_keys", "unique key lapses", "if lapses ~= '' and tonumber(lapses) <= now then return nil end", ""
    ),
    _lua(
        "parts/unique_keys",
        "freed by its holder alone",
        "if holder and (holder == id or sub(holder, 1, #id + 1) == id .. '\\n') then",
        "if holder then",
    ),
    # Leases
    _lua("acquire", "held by another", "if not sign or dead[sign] then", "if true then"),
    _lua("acquire", "fence above all earlier ones", "raise_mark(math.max(tonumber(last), ", "raise_mark(math.max(0, "),
    _lua("acquire", "fence above all that the launch has seen", "(last), tonumber(ARGV[8]))", "(last), 0)"),
    _lua("parts/marks", "the mark rises", "math.max(before + 1, now_ms(), known + 1)", "math.max(before, known + 1)"),
    _python("leases", "a renewal that finds less than was seen", "if before < seen else None", "if False else None"),
    _python("rollback", "a connection that finds less than was seen", "if mark < seen:", "if False:"),
    _python("rollback", "what was merely read", "min(seen, mark) if self._confirmed else mark", "mark"),
    _python("connecting/sentinel", "a replica is not written to", 'or role[:1] != [b"master"]:', ":"),
    _python(
        "connecting/sentinel", "a primary that was replaced is left", "if self._sentinels.moved_from(", "if not bool("
    ),
    _python(
        "connecting/server_wire",
        "clients of another server are left alone",
        "self._abandoned.get(self.place, ())",
        "sum(self._abandoned.values(), [])",
    ),
    _python("rollback", "a message that is gone", "if not record and row is None:", "if False:"),
    _lua("acquire", "repeated call", "if lease[3] == ARGV[1] then return", "if false then return"),
    _lua("acquire", "one successor", "if waiting and waiting ~= ARGV[1] then return {-1, holders} end", ""),
    _lua(
        "acquire",
        "none while the store is to close",
        "if redis.call('EXISTS', closing) == 1 then return {-1, {}} end",
        "",
    ),
    _lua("close", "no lease given since", "if begin == 1 and redis.call('EXISTS', first) == 0 then return 0 end", ""),
    _lua("close", "closed once", "if kind ~= 'closed' then", "if true then"),
    _lua("fill", "a page of a list counts once", "added = {unpack(added, present + 1)}", ""),
    _lua("fill", "a page of a list has its place", "if present < 0 then return 0 end", ""),
    _lua("renew", "owner compare", "elseif fence ~= ARGV[3] then", "elseif false then"),
    _lua(
        "renew",
        "revived by its last holder alone",
        "if not fence and redis.call('HGET', fences, ARGV[1]) == ARGV[3] then",
        "if not fence then",
    ),
    _lua("release", "owner compare", "if redis.call('HGET', lease, 'fence') ~= ARGV[3] then return {mark, 0} end", ""),
    _lua(
        "release",
        "fence taken back",
        "if redis.call('HGET', fences, ARGV[1]) == ARGV[3] then redis.call('HDEL', fences, ARGV[1]) end\n",
        "",
    ),
    _lua(
        "release",
        "fence taken back by its owner alone",
        "if redis.call('HGET', fences, ARGV[1]) == ARGV[3] then",
        "if true then",
    ),
    _lua("withdraw", "owner compare", "if redis.call('GET', next) == ARGV[1] then", "if true then"),
    _lua("break", "fence taken back", "redis.call('HDEL', fences, ARGV[1])\n", ""),
    _lua("break", "owner compare", "if redis.call('HGET', lease, 'fence') ~= ARGV[2] then return 0 end", ""),
    # Recurrences
    _lua("recur", "instant compare", "tonumber(due) ~= tonumber(ARGV[4])", "false"),
    _lua("parts/occurrences", "id of the occurrence", _OCCURRENCE_KNOWN, ""),
    _lua("parts/occurrences", "old instants", "while from <= #kept and six(kept, from) < oldest do", "while false do"),
    _lua("parts/occurrences", "most instants", "math.max(from, #kept - 6 * MOST_INSTANTS + 1)", "from"),
    _lua("recur", "definition compare", " or redis.call('HGET', recurrences, name) ~= ARGV[9]", ""),
    _lua("recur", "what was due is enqueued", "redis.call('HDEL', recurrence_counters, name .. ':before')\n", ""),
    _lua("recur", "overlap", "elseif ARGV[7] == '1' and unfinished then", "elseif false then"),
    _lua("recur", "most occurrences", "  if #occurred >= left then", "  if false then"),
    _lua("recur", "ends after the last of them", "ARGV[5] ~= '' and #occurred < left then", "ARGV[5] ~= '' then"),
    _lua(
        "trigger",
        "its definition is there",
        "if ARGV[5] ~= '1' and redis.call('HEXISTS', recurrences, ARGV[1]) == 0 then return 0 end",
        "",
    ),
    _lua("parts/recurrences", "most that have ended", "> MOST_ENDED then", "> 1e9 then"),
    _lua("put", "names of configurations", "if #taken > 0 then return taken end\n", ""),
    _lua("put", "one that is as it was goes on", "before .. '}' ~= definition then", "true then"),
    _lua("put", "what is due by the rule before", "due_by(name, held, now, first)", "nil"),
    _lua("hold", "periods of the rule that waits", "paused, following or", "paused,"),
    _lua("put", "a clock that went back", "and tonumber(created) > now and", "and false and"),
    _lua("put", "one that has begun goes on", "and count_of(name, 'enqueued') == 0 then", "then"),
    _lua("put", "one of the same rule goes on", "sub(held, 1, #rule) ~= rule then", "true then"),
    _lua(
        "put",
        "what is due stays due",
        ", due\n      end\n      begin",
        ", first\n      end\n      begin",
    ),
    _lua(
        "put",
        "one that is spent stays ended",
        "not due and first and (not most or count_of(name, 'enqueued') < most) then",
        "not due and first then",
    ),
    _lua("put", "one that is limited ends", "elseif due and latest and due > latest or", "elseif"),
    _lua("define", "one that was put", "if held and sub(held, 1, #PUT) == PUT then", "if false then"),
    _lua("define", "names that a version before did not keep", "local owned = listed and {} or", "local owned = {} or"),
    _lua(
        "parts/leave",
        "previous of one that was removed",
        " and redis.call('HEXISTS', recurrence_counters, name .. ':last') == 1 then",
        " then",
    ),
    _lua(
        "parts/leave",
        "previous by instant",
        "if not held or sub(held, 1, 6) <= sub(instants, 1, 6) then",
        "if true then",
    ),
    _lua(
        "set_aside",
        "instant compare",
        "if redis.call('ZSCORE', next_instants, ARGV[i]) == ARGV[i + 1] then",
        "if true then",
    ),
    _lua(
        "hold", "its definition is there", "if redis.call('HEXISTS', recurrences, ARGV[1]) == 0 then return 0 end", ""
    ),
    _lua("define", "one owner more", "if not find(owners, '\\n' .. owner .. '\\n', 1, true) then", "if true then"),
    _lua(
        "define",
        "one owner more, by its whole name",
        "if not find(owners, '\\n' .. owner .. '\\n', 1, true) then",
        "if not find(owners, owner, 1, true) then",
    ),
    _lua(
        "define",
        "owners by whole names",
        "  if find(owners, '\\n' .. owner .. '\\n', 1, true) then",
        "  if find(owners, owner, 1, true) then",
    ),
    _lua(
        "define",
        "removed by its owner alone",
        "  if find(owners, '\\n' .. owner .. '\\n', 1, true) then",
        "  if owners ~= '' then",
    ),
    _lua("define", "what is named stays", "local owners = not named[name] and", "local owners ="),
    _lua("define", "another owner keeps it", "if others ~= '\\n' then", "if false then"),
    _lua(
        "define", "an absent owner keeps nothing", "if other ~= owner and present[other] then", "if other ~= owner then"
    ),
    _lua("define", "absent after a day", "(tonumber(seen[i + 1]) or 0) > now - ABSENT_MS", "false"),
    _lua("define", "one that is as it was goes on", "if held ~= definition then", "if true then"),
    _lua(
        "define",
        "what is due stays due",
        ", due\n      end\n      begin",
        ", instant\n      end\n      begin",
    ),
    _lua("define", "an instant to come is not due", "due and due <= now and due < instant", "due and due < instant"),
    _lua(
        "define",
        "what was replaced goes on",
        "    if instant and following and following < instant then instant = following end\n",
        "",
    ),
    _lua("define", "replaced within the hour", "if not at or tonumber(at) < now - GOES_ON_MS then", "if not at then"),
    _lua("define", "replaced ones lapse", "  redis.call('PEXPIRE', recurrences_replaced, GOES_ON_MS)\n", ""),
    _lua("define", "contested from the second time", "if times and times > 1 then", "if times then"),
    _lua(
        "parts/recurrences",
        "pause",
        "if instant and redis.call('HEXISTS', recurrence_counters, name .. ':paused') == 0 then",
        "if instant then",
    ),
    _lua("parts/recurrences", "instants that a rule yields", "and instant >= EARLIEST and instant < LATEST and", "and"),
    _lua(
        "define",
        "what is due by the definition before",
        "due_by(name, held, now, instant)",
        "nil",
    ),
    _lua(
        "define",
        "one that stands still",
        "elseif first and first > now and (not due or due > first) then",
        "elseif false then",
    ),
    _lua("define", "what stands before its first instant", "and (not due or due > first) then", "then"),
    _lua(
        "undefine",
        "others whose names begin alike",
        "if sub(kept[i], 1, #ARGV[1] + 1) == ARGV[1] .. '\\n' then",
        "if true then",
    ),
    # Several nodes as one connection
    _python("cluster/cluster_wire", "late answers of other nodes", "self._nodes[node]._abandon()", "pass"),
    _python("cluster/cluster_wire", "asking", '[("ASKING",), self', '[("TIME",), self'),
    _python("cluster/cluster_wire", "what another node may have carried out", "sent=among > 1", "sent=False"),
    _python("cluster/cluster_wire", "a slot's new node", "self._topology.learn(slot, owner)", "pass"),
    _python(
        "cluster/cluster_wire", "the fewest replicas", "answers[at] = least(answer, before)", "answers[at] = answer"
    ),
    _python("cluster/cluster_wire", "replicas do not wait", "if served or not is_wait:", "if True:"),
    _python("cluster/cluster_wire", "doubt", "self._topology.doubtful |= isinstance(error, Unanswered)", "pass"),
    _python(
        "cluster/topology",
        "another node in doubt",
        "self._asked = [*(each for each in self._asked if each != node), node]",
        "pass",
    ),
    # Rights and types, before the first write
    _lua("parts/rights", "rights", "if not (known and allowed) then", "if false then"),
    _lua("register", "rights before a queue is known", "if #lacking == 0 and", "if"),
    _python("connecting/replies", "refusal", "    if lacking:", "    if False:"),
    _python("upkeep", "rights of a launch in a queue", "self.register(queue, LAUNCH)", "self.register(queue)"),
    _python("producer", "rights of a producer in a queue", '"rows"), *rights.split(), *self.wire.rights]', '"rows")]'),
    _python(
        "strict_producer",
        "rights of one that waits for replicas",
        'f"{Producer.rights} {strict.right}"',
        "Producer.rights",
    ),
    _python("leases", "rights of a launch", "            demand(self._wire, LAUNCH, ", "            str(LAUNCH + "),
    _python("connecting/wire", "rights of one that waits", "= () if strict is None else (strict.right,)", "= ()"),
    _python(
        "connecting/confirmation",
        "confirmation of what a launch changed",
        "        raise strict.unconfirmed(problem)\n",
        "",
    ),
    _python(
        "connecting/strict",
        "what a lost connection wrote",
        "*dict.fromkeys(map(self.marking, keys)), waiting]",
        "waiting]",
    ),
    _python("leases", "rights to break", '        demand(self._wire, OPERATOR, control("fences"))\n', ""),
    _python(
        "interventions", "rights", '            demand(self._wire, OPERATOR, self._keys.queue(queue, "rows"))\n', ""
    ),
    _python(
        "recurrence_interventions",
        "rights",
        '        demand(self._wire, rights, self._keys.queue(standing.queue, "recurrences"))\n',
        "        pass\n",
    ),
    _python("upkeep", "types of a queue's keys", "        self._check_types(queue)\n", ""),
    # Between scripts
    _python(
        "launch_recurrences",
        "what is due stays due in another queue",
        'self._wire.command("ZADD", elsewhere, "XX", "LT", int(due), name)',
        "pass",
    ),
    _python("producer", "a repetition has an end", "mend=bound, ", ""),
    _python(
        "outbox",
        "what is left is not overtaken",
        "Origin(queue, number, 0) if number and not left else None, packed",
        "Origin(queue, number, 0) if number else None, packed",
    ),
    _python("outbox", "entries of a newer version", "            if _is_newer(packed):", "            if False:"),
    _python(
        "outbox",
        "sent before it is forgotten",
        "            sent += _send(",
        '            store.wire.command("LREM", outbox, 1, entry)\n            sent += _send(',
    ),
    _python(
        "redis_store",
        "what a lost reply reserved is given back",
        "        give_back()\n        return",
        "        return",
    ),
    _python(
        "redis_store",
        "what the next lost reply reserved is given back",
        "return self.wire.all(commands, mend=give_back)",
        "return self.wire.all(commands)",
    ),
)
