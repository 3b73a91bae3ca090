-- Let a queue hand out nothing, or go on.
-- KEYS q k
-- ARGV 1 to pause, 0 to resume
-- Returns 1 when that changed anything

if ARGV[1] == '1' then return redis.call('SETNX', q, now_ms()) end
wake(k)
return redis.call('DEL', q)
