-- NEEDS numbers markers
-- Recurrences: their next instants, their ends, and their stored counters.

-- How a definition begins that was put at run time. All others are of configurations.
local PUT = '{"rule":'
local EARLIEST, LATEST = 0, 1e14
-- Number of ended recurrences that a queue keeps.
local MOST_ENDED = 10000

-- The next instant; nil if it is corrupt.
local function next_instant(name)
  local instant = tonumber(redis.call('ZSCORE', next_instants, name) or redis.call('ZSCORE', recurrences_unreadable, name) or nil)
  return instant and instant >= EARLIEST and instant < LATEST and instant or nil  -- GUARD instants that a rule yields
end

-- What was due by a replaced definition stays due. For each such definition, oldest first: when it was replaced, the
-- first instant by the next definition, and the definition itself.
local function due_by(name, definition, now, following)
  local before = redis.call('HGET', recurrence_counters, name .. ':before') or ''
  return before .. decimal(now) .. ' ' .. decimal(following) .. ' ' .. definition .. '\n'
end

-- `before`: see `due_by`; nil if nothing is due.
local function begin(name, instant, before)
  redis.call('ZREM', recurrences_unreadable, name)
  redis.call('ZREM', recurrences_ended, name)
  if before then
    redis.call('HSET', recurrence_counters, name .. ':before', before)
  else
    redis.call('HDEL', recurrence_counters, name .. ':before')
  end
  if instant and redis.call('HEXISTS', recurrence_counters, name .. ':paused') == 0 then  -- GUARD pause
    redis.call('ZADD', next_instants, decimal(instant), name)
    wake(schedule_marker)
  else
    redis.call('ZREM', next_instants, name)
  end
end

local function count_of(name, what)
  local held = redis.call('HGET', recurrence_counters, name .. ':' .. what)
  held = held and #held < 16 and string.match(held, '^%d+$') or 0
  return tonumber(held)
end

local function forget_recurrence(name)
  redis.call('HDEL', recurrences, name)
  redis.call('ZREM', next_instants, name)
  redis.call('ZREM', recurrences_unreadable, name)
  redis.call('ZREM', recurrences_ended, name)
  redis.call('HDEL', recurrence_counters, name .. ':skipped', name .. ':enqueued', name .. ':last', name .. ':instants',
    name .. ':previous', name .. ':before')
end

-- A recurrence that was put at run time has no further occurrence. It is kept, with its history, until it is removed,
-- or until so many others have ended.
local function finish(name, now)
  redis.call('ZREM', next_instants, name)
  redis.call('ZADD', recurrences_ended, now, name)
  if redis.call('ZCARD', recurrences_ended) > MOST_ENDED then  -- GUARD most that have ended
    local oldest = redis.call('ZRANGE', recurrences_ended, 0, 0)[1]
    forget_recurrence(oldest)
    redis.call('HDEL', recurrence_counters, oldest .. ':paused')
  end
end
