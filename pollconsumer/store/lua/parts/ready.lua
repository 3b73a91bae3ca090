-- NEEDS rows
-- What is ready: ids of priority 0 in a list, all others in a sorted set.

-- The others are ordered by when they became ready, in ticks of 1/1024 ms, a level of priority counting as much as an
-- hour of waiting: so no message is overtaken for ever. (Ageing by a score that is never computed again: every message
-- ages at the same rate.)
local TICKS, LEVEL = 1024, 3686400000

-- Ids that stand among the ready ones without being ready there, or a second time: counts leave them out.
local DUPLICATES = 'left over'

local function ready_score(priority, tick)
  return decimal(priority * LEVEL + tick)
end

-- The first of `count` ticks that no message has had: of now, or after the last one.
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

local back = 0  -- how many messages this script has put back

-- Back where it was, before all that became ready with it or after it, and before what was put back before it.
local function put_back(id, row)
  local priority = priority_of(row)
  if priority == 0 then
    redis.call('LPUSH', ready, id)
  else
    redis.call('ZADD', ready_by_priority, ready_score(priority, number6(row, ENQUEUED) * TICKS - 1 - back), id)
  end
  back = back + 1
end
