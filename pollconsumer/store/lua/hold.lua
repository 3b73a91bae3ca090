-- Pause a recurrence, or let it go on.
-- KEYS n nz nc ks recurrences_unreadable
-- ARGV name, next instant in epoch ms to go on with; '' to pause
-- Returns 1; 0 when there is none of that name

if redis.call('HEXISTS', n, ARGV[1]) == 0 then return 0 end
if ARGV[2] == '' then
  redis.call('HSET', nc, ARGV[1] .. ':paused', 1)
  redis.call('ZREM', nz, ARGV[1])
  redis.call('ZREM', recurrences_unreadable, ARGV[1])
elseif redis.call('HDEL', nc, ARGV[1] .. ':paused') == 1 then
  redis.call('ZADD', nz, ARGV[2], ARGV[1])
  wake(ks)
end
return 1
