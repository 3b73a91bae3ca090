-- NEEDS rows
-- Ready messages: ids of priority 0 in a list, all others in a sorted set.

-- The set is sorted by when messages became ready, in ticks of 1/1024 ms, plus an hour for each level of priority,
-- which prevents starvation. (All messages age at the same rate, so scores never change.)
local TICKS, LEVEL = 1024, 3686400000

local function ready_score(priority, tick)
  return decimal(priority * LEVEL + tick)
end

-- The first of `count` unused ticks: now, or after the last one used.
local function next_ticks(count, now)
  local first = math.max((tonumber(redis.call('HGET', counters, 'tick') or 0) or 0) + 1, now * TICKS)
  redis.call('HSET', counters, 'tick', decimal(first + count - 1))
  return first
end

local function make_ready(id, priority, now)
  if priority == 0 then
    redis.call('RPUSH', ready, id)
  else
    redis.call('ZADD', ready_by_priority, ready_score(priority, next_ticks(1, now)), id)
  end
end

local pushed = 0  -- calls of push_front in this script

-- Return a message to the head: before all that became ready later or together, and those that this script returned.
local function push_front(id, row)
  local priority = priority_of(row)
  if priority == 0 then
    redis.call('LPUSH', ready, id)
  else
    redis.call('ZADD', ready_by_priority, ready_score(priority, number6(row, ENQUEUED) * TICKS - 1 - pushed), id)
  end
  pushed = pushed + 1
end
