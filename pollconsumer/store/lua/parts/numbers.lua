-- Numbers and instants (epoch milliseconds) in six bytes, big-endian.

local byte, char, floor, sub, find = string.byte, string.char, math.floor, string.sub, string.find
local NEVER = '\0\0\0\0\0\0'
local RECORD_BEGINS = 'A\0\128\0'  -- the record of a message without options, before the instant of its enqueueing

local function be6(n)
  local low = n % 16777216
  local high = (n - low) / 16777216
  return char(floor(high / 65536), floor(high / 256) % 256, high % 256,
    floor(low / 65536), floor(low / 256) % 256, low % 256)
end

local function number6(s, at)
  local a, b, c, d, e, f = byte(s, at, at + 5)
  return ((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f
end

-- tostring would round instants to 14 digits.
local function decimal(n)
  return string.format('%.0f', n)
end

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + floor(time[2] / 1000)
end

-- Milliseconds, with a fraction.
local function exactly_now()
  local time = redis.call('TIME')
  return time[1] * 1000 + time[2] / 1000
end

-- The schedule's score of an instant in ms: whole microseconds.
local function due_score(ms)
  return string.format('%.0f', ms * 1000)
end

-- Whether a stored value is an integer that fits into six bytes.
local function whole(text)
  return text and #text < 16 and find(text, '^%d+$') ~= nil and tonumber(text) < 281474976710656
end

-- The number of ids in the ready list that are duplicates, or not ready. It is subtracted from the list's length.
local DUPLICATES = 'left over'

-- Add to one of the queue's counters. A corrupt counter begins at 0.
local function count_up(name, by)
  local is_number, count = pcall(redis.call, 'HINCRBY', counters, name, by)
  if is_number then return count end
  redis.call('HSET', counters, name, by)  -- GUARD counters that are no numbers
  return by
end
