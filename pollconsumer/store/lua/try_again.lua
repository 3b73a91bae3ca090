-- Return recurrences that were set aside, at their due instants.
-- KEYS announced next_instants recurrences_unreadable
-- ARGV lineage, fence
-- Returns how many there are
-- Refusals: FENCED

-- GUARD fence compare
if redis.call('HGET', announced, ARGV[1]) ~= ARGV[2] then return redis.error_reply('FENCED ' .. ARGV[1]) end
local aside = redis.call('ZRANGE', recurrences_unreadable, 0, -1, 'WITHSCORES')
for i = 1, #aside, 2 do redis.call('ZADD', next_instants, aside[i + 1], aside[i]) end
redis.call('DEL', recurrences_unreadable)
return #aside / 2
