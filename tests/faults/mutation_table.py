"""The guards of the store: what is taken out of which file, by substituting one text that stands there exactly once.

``PAIRS`` are guards that cover each other: without one of them there is no harm, without both there is.
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
    return Mutation(f"{script}: {name}", (Edit(f"lua/{script}.lua", old, new),))


_FENCE = "local refusal = not_ours(ARGV[1], ARGV[2])"
_NO_FENCE = "local refusal = nil"

MUTATIONS: tuple[Mutation, ...] = (
    # What a stale launch may not do
    *(
        _lua(name, "fence compare", _FENCE, _NO_FENCE)
        for name in ("step", "promote", "unreserve", "checkpoint", "recur")
    ),
    _lua("step", "row compare, completed", "if rows[i] == ARGV[at + 1] then", "if rows[i] then"),
    _lua("step", "row compare, settled otherwise", "elseif held == ARGV[at + 1] then", "elseif held then"),
    _lua("step", "row compare, begun", "if held == ARGV[at + 1] and kind", "if kind"),
    _lua("step", "a repeated completion is not stale", "elseif rows[i] ~= row then", "else"),
    _lua(
        "step", "a repeated failure is not stale", "elseif not held or sub(held, 1, 56) ~= sub(row, 1, 56) then", "else"
    ),
    _lua("checkpoint", "row compare", "if row ~= ARGV[4] and row ~= ARGV[5] then return 0 end", ""),
    _lua("unreserve", "fence of the row", "sub(row, 9, 14) == ARGV[3] and", "true and"),
    _lua("unreserve", "what the launch knows of", "not known[id] and redis.call", "redis.call"),
    _lua("unreserve", "what was begun for the only time", "and not has_flag(byte(row, 1), BEGUN)", ""),
    # One place for each message
    _lua("step", "completed leaves flight", "    redis.call('ZREM', f, unpack(gone))\n", ""),
    _lua(
        "step", "settled leaves flight", "    settled = true\n    redis.call('ZREM', f, id)\n", "    settled = true\n"
    ),
    _lua("step", "state of what is popped", "state_of(row) ~= 'ready' or has_flag", "has_flag"),
    _lua("step", "id popped twice", "if seen[id] or row and", "if row and"),
    _lua("promote", "removed from the schedule", "  redis.call('ZREM', s, unpack(ids))\n", ""),
    _lua(
        "promote",
        "what is due alone",
        "redis.call('ZRANGEBYSCORE', s, '-inf', now,",
        "redis.call('ZRANGEBYSCORE', s, '-inf', '+inf',",
    ),
    _lua("promote", "state", "if state ~= 'scheduled' and state ~= 'ready' then", "if false then"),
    _lua("recover", "removed from flight", "      redis.call('ZREM', f, id)\n      row =", "      row ="),
    _lua("recover", "orphans alone", "if late or not valid[fence] then", "if true then"),
    _lua("recover", "live fences", " and not live[fence]", ""),
    _lua("recover", "deaths counted", "char(math.min(byte(row, 7) + 1, 255))", "sub(row, 7, 7)"),
    _lua("recover", "begun for the only time", "      if has_flag(byte(row, 1), BEGUN) then", "      if false then"),
    _lua("step", "attempts counted", "math.min(high * 256 + low + 1, 65535)", "math.min(high * 256 + low, 65535)"),
    _lua("cancel", "state", "if state ~= 'scheduled' and state ~= 'ready' then return state end", ""),
    _lua("reschedule", "state", "if state ~= 'scheduled' and state ~= 'ready' then return state end", ""),
    _lua("redrive", "dead letters alone", "redis.call('ZSCORE', x, id) and readable", "readable"),
    _lua("purge", "dead letters alone", "if redis.call('ZSCORE', x, id) then", "if true then"),
    # Limits
    _lua("step", "places of a concurrency key", "has_place = taken[key] < most", "has_place = true"),
    _lua("step", "places given back", "      leave_place(key)\n      freed", "      freed"),
    _lua("step", "pause", "wanted > 0 and redis.call('EXISTS', q) == 0", "wanted > 0"),
    _lua("step", "most in flight", "tonumber(most) - redis.call('ZCARD', f)", "tonumber(most)"),
    _lua("step", "quota counted", "if slice and count > 0 then", "if false then"),
    # Ids and unique keys
    _lua(
        "enqueue",
        "id in the store",
        "holder = (rows[i] or records[i] or earlier or i <= known) and id",
        "holder = (earlier or i <= known) and id",
    ),
    _lua("enqueue", "id in the batch", "seen[id] or younger[i]", "younger[i]"),
    _lua("enqueue", "id in memory", "younger[i] or older[i]", "nil"),
    _lua("enqueue", "ids of the generation before", "younger[i] or older[i]", "younger[i]"),
    _lua("enqueue", "received before", "or earlier or i <= known)", "or earlier)"),
    _lua("enqueue", "digest compare", "earlier ~= '' and earlier ~= chosen[i]", "false"),
    _lua("enqueue", "too late for a repetition", "now > tonumber(sub(ARGV[2], 2))", "false"),
    _lua("_prelude", "digest of a forgotten id", "digested and digested[i] or ''", "''"),
    _lua(
        "_prelude",
        "two generations of ids",
        "redis.call('RENAME', id_memory, id_memory_before)",
        "redis.call('DEL', id_memory)",
    ),
    _lua("step", "numbers of an outbox rise", "tonumber(redis.call('HGET', c, 'sent on') or 0) + 1", "0"),
    _lua("enqueue", "unique key in the store", "holder = keys[key] or holder_of(key, now)", "holder = keys[key]"),
    _lua(
        "enqueue",
        "unique key in the batch",
        "holder = keys[key] or holder_of(key, now)",
        "holder = holder_of(key, now)",
    ),
    _lua("redrive", "unique key of another", "if record and (not holder or holder == id) then", "if record then"),
    _lua("_prelude", "unique key lapses", "if lapses ~= '' and tonumber(lapses) <= now then return nil end", ""),
    _lua(
        "_prelude",
        "freed by its holder alone",
        "if holds_key(id, key) then redis.call('HDEL', u, key) end",
        "redis.call('HDEL', u, key)",
    ),
    # Leases
    _lua("acquire", "held by another", "if not sign or dead[sign] then", "if true then"),
    _lua(
        "acquire",
        "fence above all earlier ones",
        "math.max(tonumber(last) + 1, now)",
        "now",
    ),
    _lua("acquire", "repeated call", "if lease[3] == ARGV[1] then return", "if false then return"),
    _lua("acquire", "one successor", "if waiting and waiting ~= ARGV[1] then return {-1} end", ""),
    _lua("renew", "owner compare", "elseif fence ~= ARGV[3] then", "elseif false then"),
    _lua(
        "renew",
        "revived by its last holder alone",
        "if not fence and redis.call('HGET', fences, ARGV[1]) == ARGV[3] then",
        "if not fence then",
    ),
    _lua("release", "owner compare", "if redis.call('HGET', lease, 'fence') ~= ARGV[3] then return 0 end", ""),
    _lua(
        "release",
        "fence taken back by its owner alone",
        "if redis.call('HGET', fences, ARGV[1]) == ARGV[3] then",
        "if true then",
    ),
    _lua("break", "owner compare", "if redis.call('HGET', lease, 'fence') ~= ARGV[2] then return 0 end", ""),
    # Between scripts
    Mutation(
        "outbox: sent before it is forgotten",
        (
            Edit(
                "outbox.py",
                "            sent += _send(",
                '            store.wire.command("LREM", outbox, 1, entry)\n            sent += _send(',
            ),
        ),
    ),
    Mutation(
        "redis_store: what a lost reply reserved is given back",
        (
            Edit(
                "redis_store.py",
                "        give_back()\n        return self.wire.all(commands, mend=give_back)",
                "        return self.wire.all(commands)",
            ),
        ),
    ),
)

_INSTANT = Edit("lua/recur.lua", "tonumber(due) ~= tonumber(ARGV[4])", "false")
_OCCURRENCE = Edit(
    "lua/recur.lua",
    "elseif redis.call('HEXISTS', b, id) + redis.call('HEXISTS', m, id) + redis.call('HEXISTS', id_memory, id)\n"
    "    + redis.call('HEXISTS', id_memory_before, id) == 0 then",
    "else",
)
_HOLDER_ENDED = Edit(
    "lua/_prelude.lua",
    "if row and sub(row, 2, 2) ~= '\\0' or not row and redis.call('HEXISTS', b, id) == 0 then return nil end",
    "",
)
_KEY_FREED = Edit("lua/step.lua", "if unique then free_key(id, record) end", "")

PAIRS: tuple[Mutation, ...] = (
    Mutation("recur: instant compare, and id of the occurrence", (_INSTANT, _OCCURRENCE)),
    Mutation("unique keys: freed at the end, and no ended holder holds one", (_KEY_FREED, _HOLDER_ENDED)),
)
