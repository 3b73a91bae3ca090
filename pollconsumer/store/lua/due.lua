-- Recurrences that have an occurrence to enqueue.
-- KEYS recurrences next_instants recurrence_counters
-- NEEDS numbers
-- ARGV maximum number of recurrences
-- Returns now; names; due instants; definitions, if any; what is due by replaced definitions, see `recurrences.lua`

local now = now_ms()
local entries = redis.call('ZRANGEBYSCORE', next_instants, '-inf', now, 'WITHSCORES', 'LIMIT', 0, ARGV[1])
if #entries == 0 then return {now, {}, {}, {}, {}} end
local names, instants, before = {}, {}, {}
for i = 1, #entries, 2 do
  names[#names + 1], instants[#instants + 1], before[#before + 1] = entries[i], entries[i + 1], entries[i] .. ':before'
end
local definitions = redis.call('HMGET', recurrences, unpack(names))
return {now, names, instants, definitions, redis.call('HMGET', recurrence_counters, unpack(before))}
