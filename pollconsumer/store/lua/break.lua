-- Take a lease away from its holder, who learns of it at the next renewal and may not revive it.
-- KEYS lease baton fences
-- ARGV lineage, fence that is to be broken
-- Returns 1; 0 when another holds the lease by now

if redis.call('HGET', lease, 'fence') ~= ARGV[2] then return 0 end
redis.call('HDEL', fences, ARGV[1])
redis.call('DEL', lease, baton)
redis.call('LPUSH', baton, 1)
redis.call('PEXPIRE', baton, 1000)
return 1
