-- Revoke a lease. Its holder learns of it at the next renewal and cannot revive it.
-- KEYS lease baton fences answered
-- NEEDS once
-- ARGV lease name, fence of the holder
-- Returns 1; 0 when another holds the lease by now

if redis.call('HGET', lease, 'fence') ~= ARGV[2] then return 0 end  -- GUARD owner compare
redis.call('HDEL', fences, ARGV[1])  -- GUARD fence taken back
redis.call('DEL', lease, baton)
redis.call('LPUSH', baton, 1)
redis.call('PEXPIRE', baton, 1000)
return 1
