-- Recurrences that have an occurrence to enqueue.
-- KEYS recurrences next_instants
-- NEEDS numbers
-- ARGV most recurrences
-- Returns now; their names; their due instants; their definitions, if any

local now = now_ms()
local entries = redis.call('ZRANGEBYSCORE', next_instants, '-inf', now, 'WITHSCORES', 'LIMIT', 0, ARGV[1])
local names, instants = {}, {}
for i = 1, #entries, 2 do names[#names + 1], instants[#instants + 1] = entries[i], entries[i + 1] end
return {now, names, instants, #names > 0 and redis.call('HMGET', recurrences, unpack(names)) or {}}
