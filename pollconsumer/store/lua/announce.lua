-- Make a queue refuse every earlier holder of a lease. Quarantined recurrences return to their due instants, since this
-- launch may be able to read them.
-- KEYS announced successor_waits served schedule next_instants recurrences_unreadable
-- NEEDS numbers
-- ARGV lease name, fence, ms for which the queue counts as served from now on ('0' if it does not), most due times to convert
-- Returns how many due times were converted to microseconds: an earlier version wrote milliseconds
-- Refusals: FENCED if a newer holder was announced before; FOREIGN with a corrupt key

-- Between these, a number in the schedule is milliseconds (2001 to 5138): as microseconds, it would be before 1973.
local IN_MS, IN_US = 1000000000000, 100000000000000

for _, fence in ipairs(redis.call('HVALS', announced)) do
  if not whole(fence) then return redis.error_reply('FOREIGN ' .. announced) end
end
local seen = redis.call('HGET', announced, ARGV[1])
-- GUARD a newer holder was here
if seen and tonumber(seen) > tonumber(ARGV[2]) then return redis.error_reply('FENCED ' .. ARGV[1]) end
redis.call('HSET', announced, ARGV[1], ARGV[2])
-- Delete a call to earlier holders: this launch made it. A call to this launch's fence is one of a launch that has
-- begun to wait since.
local called = tonumber(redis.call('GET', successor_waits) or 0)
if not called or called < tonumber(ARGV[2]) then redis.call('DEL', successor_waits) end
if ARGV[3] ~= '0' then redis.call('SET', served, 1, 'PX', ARGV[3]) end
local unreadable = redis.call('ZRANGE', recurrences_unreadable, 0, -1, 'WITHSCORES')
for i = 1, #unreadable, 2 do redis.call('ZADD', next_instants, unreadable[i + 1], unreadable[i]) end  -- GUARD looked at again
if unreadable[1] then redis.call('DEL', recurrences_unreadable) end
local in_ms = redis.call('ZRANGEBYSCORE', schedule, IN_MS, '(' .. IN_US, 'WITHSCORES', 'LIMIT', 0, ARGV[4])
for i = 1, #in_ms, 2 do redis.call('ZADD', schedule, due_score(in_ms[i + 1]), in_ms[i]) end
return #in_ms / 2
