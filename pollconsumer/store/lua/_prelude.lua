-- Stands before every script. The loader binds KEYS to the names that the script's header gives.
--
-- A row (hash m) is 62 bytes and the handler's name; numbers are big-endian, instants are epoch milliseconds:
--   1 flags (1 large record, 2 unique key, 4 parked, 8 concurrency key, 16 waiting for it, 32 begun for the only time,
--     64 has a checkpoint)   2 ending (0, c completed, d dead, x cancelled)
--   3-4 priority + 32768   5-6 attempts   7 crashes   8 generation   9-14 fence
--   15-20 reserved   21-26 started (while it is ready: its number among those that wait for a concurrency key)
--   27-32 ended   33-38 scheduled   39-44 due   45-50 enqueued   51-56 failed   57-62 next attempt
-- A record (hash b) is a header, the unique key, where flag 8 is set the concurrency key, the handler's name, a line
-- feed, the payload:
--   1 version   2 flags   3-4 priority + 32768   5-10 scheduled   11 length of the unique key
--   a concurrency key is: most messages in flight with it, its length, itself

local NEVER = '\0\0\0\0\0\0'
local byte, char, floor, sub, find = string.byte, string.char, math.floor, string.sub, string.find
local LARGE, UNIQUE, PARKED, CONCURRENCY, WAITING, BEGUN, CHECKPOINT = 1, 2, 4, 8, 16, 32, 64

local function be6(n)
  local low = n % 16777216
  local high = (n - low) / 16777216
  return char(floor(high / 65536), floor(high / 256) % 256, high % 256,
    floor(low / 65536), floor(low / 256) % 256, low % 256)
end

local function number6(s, at)
  local a, b1, c1, d1, e1, f1 = byte(s, at, at + 5)
  return ((((a * 256 + b1) * 256 + c1) * 256 + d1) * 256 + e1) * 256 + f1
end

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + floor(tonumber(time[2]) / 1000)
end

local function priority_of(s)
  local high, low = byte(s, 3, 4)
  return high * 256 + low - 32768
end

-- A row, or a record, that can be taken apart; what somebody else wrote there may be anything.
local function well_formed(row)
  return row and #row >= 62 and row or nil
end

local function has_flag(flags, flag)
  return floor(flags / flag) % 2 == 1
end

-- Where the handler's name begins in a record; beyond its end where that is cut short.
local function handler_at(record)
  local at = 12 + byte(record, 11)
  if has_flag(byte(record, 2), CONCURRENCY) then at = at + 2 + (byte(record, at + 1) or #record) end
  return at
end

local function readable(record)
  return record and #record >= 12 and sub(record, 1, 1) == 'A' and find(record, '\n', handler_at(record), true) and record
    or nil
end

local function state_of(row)
  local ending = sub(row, 2, 2)
  if ending == 'c' then return 'completed' elseif ending == 'd' then return 'dead' elseif ending == 'x' then
    return 'cancelled'
  end
  if sub(row, 15, 20) ~= NEVER then return 'reserved' end
  return sub(row, 45, 50) ~= NEVER and 'ready' or 'scheduled'
end

-- The row of a message that has none yet: it is ready, and was never reserved.
local function fresh_row(record)
  local at, scheduled = handler_at(record), sub(record, 5, 10)
  return char(byte(record, 2) + (#record > 1024 and 1 or 0)) .. '\0' .. sub(record, 3, 4) .. '\0\0\0\0' .. NEVER
    .. NEVER .. NEVER .. NEVER .. scheduled .. NEVER .. scheduled .. NEVER .. NEVER
    .. sub(record, at, (find(record, '\n', at, true) or #record + 1) - 1)
end

-- Ready messages of another priority than 0 are ordered by when they became ready, in ticks of 1/1024 ms, a level of
-- priority counting as much as an hour of waiting: so nothing is overtaken for ever. (Ageing by a score that is never
-- computed again: every message ages at the same rate.)
local TICKS, LEVEL = 1024, 1024 * 3600 * 1000

local function ready_score(priority, tick)
  return string.format('%.0f', priority * LEVEL + tick)
end

-- The first of `count` ticks that no message has had: of now, or after the last one.
local function next_ticks(count, now, c)
  local first = math.max(tonumber(redis.call('HGET', c, 'tick') or 0) + 1, now * TICKS)
  redis.call('HSET', c, 'tick', string.format('%.0f', first + count - 1))
  return first
end

local function make_ready(id, priority, r, z, c)
  if priority == 0 then
    redis.call('RPUSH', r, id)
  else
    redis.call('ZADD', z, ready_score(priority, next_ticks(1, now_ms(), c)), id)
  end
end

-- Back where it was, before all that became ready with it or after it; `back` counts what the script has put back so far.
local function put_back(id, row, back, r, z)
  local priority = priority_of(row)
  if priority == 0 then
    redis.call('LPUSH', r, id)
  else
    redis.call('ZADD', z, ready_score(priority, number6(row, 45) * TICKS - 1 - back), id)
  end
end

-- Unique keys: a key's holder, and after a line feed the instant at which it ceases to be one, where it has such.
local function holds_key(id, key, u)
  local held = redis.call('HGET', u, key)
  return held and (held == id or sub(held, 1, #id + 1) == id .. '\n')
end

-- The unfinished message that holds a key. What ended, or vanished, holds none, whatever stands there.
local function holder_of(key, now, b, m, u)
  local held = redis.call('HGET', u, key)
  if not held then return nil end
  local id, lapses = string.match(held, '^([^\n]*)\n?(%d*)')
  if lapses ~= '' and tonumber(lapses) <= now then return nil end
  local row = redis.call('HGET', m, id)
  if row and sub(row, 2, 2) ~= '\0' or not row and redis.call('HEXISTS', b, id) == 0 then return nil end
  return id
end

local function unique_key(record)
  return sub(record, 12, 11 + byte(record, 11))
end

local function free_key(id, record, u)
  local key = unique_key(record)
  if holds_key(id, key, u) then redis.call('HDEL', u, key) end
end

-- Concurrency keys: hash g counts what is in flight with each; what finds its key's places taken is set aside in w,
-- ordered by key, then as ready messages are, and is ready again when a place is free.
local function concurrency(record)
  local at = 12 + byte(record, 11)
  return byte(record, at), sub(record, at + 2, at + 1 + byte(record, at + 1))
end

local function waiting_entry(id, row, key)
  local since = number6(row, 45) + (priority_of(row) + 4096) * 3600000
  return key .. '\0' .. string.format('%013.0f', since) .. sub(row, 21, 26) .. id
end

local function wait_for_place(id, row, key, m, c, w)
  if sub(row, 21, 26) == NEVER then
    row = sub(row, 1, 20) .. be6(redis.call('HINCRBY', c, 'waited', 1)) .. sub(row, 27)
  end
  row = char(byte(row, 1) + WAITING) .. sub(row, 2)
  redis.call('HSET', m, id, row)
  redis.call('ZADD', w, 0, waiting_entry(id, row, key))
end

-- Make the first that waits for a key ready again; `back` as in put_back. Returns whether there was one.
local function offer_place(key, back, m, r, z, w)
  local entry = redis.call('ZRANGEBYLEX', w, '[' .. key .. '\0', '(' .. key .. '\1', 'LIMIT', 0, 1)[1]
  if not entry then return false end
  local id = sub(entry, #key + 21)
  local row = redis.call('HGET', m, id)
  redis.call('ZREM', w, entry)
  if row and #row >= 62 and has_flag(byte(row, 1), WAITING) then
    row = char(byte(row, 1) - WAITING) .. sub(row, 2)
    redis.call('HSET', m, id, row)
    put_back(id, row, back, r, z)
  else
    redis.call('LPUSH', r, id)  -- for the step that reserves it to find out what it lacks
  end
  return true
end

local function leave_place(key, back, m, r, z, g, w)
  if redis.call('HINCRBY', g, key, -1) <= 0 then redis.call('HDEL', g, key) end
  return offer_place(key, back, m, r, z, w)
end

-- Out of the schedule, or of what is ready. Taking one out of the middle of a list is slow: its id stays there until it
-- is popped, is not ready then, and is counted until that time.
local function take_out(id, row, record, state, m, r, z, s, c, w)
  if state == 'scheduled' then
    redis.call('ZREM', s, id)
  elseif has_flag(byte(row, 1), WAITING) then
    local _, key = concurrency(record)
    redis.call('ZREM', w, waiting_entry(id, row, key))
  elseif priority_of(row) ~= 0 then
    redis.call('ZREM', z, id)
  else
    redis.call('HINCRBY', c, 'left over', 1)
  end
  if state == 'ready' and record and has_flag(byte(row, 1), CONCURRENCY) and not has_flag(byte(row, 1), WAITING) then
    local _, key = concurrency(record)
    offer_place(key, 0, m, r, z, w)  -- the place that was offered to it, if one was
  end
end

-- A marker is a list of at most one element: it outlives the moment, so no wake-up is lost, and it cannot grow.
local function wake(marker)
  if redis.call('EXISTS', marker) == 0 then redis.call('RPUSH', marker, 1) end
end
