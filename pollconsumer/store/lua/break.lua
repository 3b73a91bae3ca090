-- Revoke a lease. Its holder notices at its next renewal, and cannot get it back.
-- KEYS lease baton fences answered
-- NEEDS once
-- ARGV lease name, fence of the holder
-- Returns 1; 0 if another launch holds the lease now

if redis.call('HGET', lease, 'fence') ~= ARGV[2] then return 0 end  -- GUARD owner compare
redis.call('HDEL', fences, ARGV[1])  -- GUARD fence taken back
redis.call('DEL', lease, baton)
redis.call('LPUSH', baton, 1)
redis.call('PEXPIRE', baton, 1000)
return 1
