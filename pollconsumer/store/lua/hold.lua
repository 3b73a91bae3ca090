-- Pause or resume a recurrence.
-- KEYS recurrences next_instants recurrence_counters schedule_marker recurrences_unreadable
-- NEEDS markers
-- ARGV name, next instant in epoch ms to resume with; '' to pause
-- Returns 1; 0 when there is none of that name

if redis.call('HEXISTS', recurrences, ARGV[1]) == 0 then return 0 end
if ARGV[2] == '' then
  redis.call('HSET', recurrence_counters, ARGV[1] .. ':paused', 1)
  redis.call('ZREM', next_instants, ARGV[1])
  redis.call('ZREM', recurrences_unreadable, ARGV[1])
elseif redis.call('HDEL', recurrence_counters, ARGV[1] .. ':paused') == 1 then
  redis.call('ZADD', next_instants, ARGV[2], ARGV[1])
  wake(schedule_marker)
end
return 1
