-- Stands before every script. The loader binds KEYS to the names that the script's header gives.
--
-- A row (hash m) is 62 bytes and the handler's name; numbers are big-endian, instants are epoch milliseconds:
--   1 flags (1 large record, 2 unique key, 4 parked)   2 ending (0, c completed, d dead, x cancelled)
--   3-4 priority + 32768   5-6 attempts   7 crashes   8 generation   9-14 fence
--   15-20 reserved   21-26 started   27-32 ended   33-38 scheduled   39-44 due   45-50 enqueued   51-56 failed
--   57-62 next attempt
-- A record (hash b) is a header, the unique key, the handler's name, a line feed, the payload:
--   1 version   2 flags   3-4 priority + 32768   5-10 scheduled   11 length of the unique key

local NEVER = '\0\0\0\0\0\0'
local byte, char, floor, sub, find = string.byte, string.char, math.floor, string.sub, string.find

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

local function readable(record)
  return record and #record >= 12 and sub(record, 1, 1) == 'A' and find(record, '\n', 12 + byte(record, 11), true) and record
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
  local handler_at, scheduled = 12 + byte(record, 11), sub(record, 5, 10)
  return char(byte(record, 2) + (#record > 1024 and 1 or 0)) .. '\0' .. sub(record, 3, 4) .. '\0\0\0\0' .. NEVER
    .. NEVER .. NEVER .. NEVER .. scheduled .. NEVER .. scheduled .. NEVER .. NEVER
    .. sub(record, handler_at, (find(record, '\n', handler_at, true) or #record + 1) - 1)
end

local function has_flag(flags, flag)
  return floor(flags / flag) % 2 == 1
end

-- Ready messages of another priority than 0 are ordered by it, then by their number.
local function ready_score(priority, number)
  return string.format('%.0f', priority * 1099511627776 + number)
end

local function make_ready(id, priority, r, z, c)
  if priority == 0 then
    redis.call('RPUSH', r, id)
  else
    redis.call('ZADD', z, ready_score(priority, redis.call('HINCRBY', c, 'number', 1)), id)
  end
end

-- Out of the schedule, or of what is ready. Taking one out of the middle of a list is slow: its id stays there until it
-- is popped, is not ready then, and is counted until that time.
local function take_out(id, row, state, s, z, c)
  if state == 'scheduled' then
    redis.call('ZREM', s, id)
  elseif priority_of(row) ~= 0 then
    redis.call('ZREM', z, id)
  else
    redis.call('HINCRBY', c, 'left over', 1)
  end
end

-- A marker is a list of at most one element: it outlives the moment, so no wake-up is lost, and it cannot grow.
local function wake(marker)
  if redis.call('EXISTS', marker) == 0 then redis.call('RPUSH', marker, 1) end
end
