-- Pause or resume a recurrence.
-- KEYS recurrences next_instants recurrence_counters schedule_marker recurrences_unreadable
-- NEEDS markers
-- ARGV name, 'pause' or 'resume', next instant in epoch ms to resume with ('' for none)
-- Returns 1; 0 when there is none of that name

if redis.call('HEXISTS', recurrences, ARGV[1]) == 0 then return 0 end
local paused = ARGV[1] .. ':paused'
if ARGV[2] == 'pause' then
  -- With the instant at which it would have been due, from which its periods count.
  redis.call('HSETNX', recurrence_counters, paused, redis.call('ZSCORE', next_instants, ARGV[1]) or 1)
  redis.call('ZREM', next_instants, ARGV[1])
  redis.call('ZREM', recurrences_unreadable, ARGV[1])
elseif redis.call('HDEL', recurrence_counters, paused) == 1 and ARGV[3] ~= '' then
  redis.call('ZADD', next_instants, ARGV[3], ARGV[1])
  wake(schedule_marker)
end
return 1
