-- Give a lease back, wake the successor, close the launch's ledger entry.
-- KEYS lease baton fences seen ledger
-- NEEDS numbers
-- ARGV lineage, role, fence, launch, ledger entry as JSON
-- Returns 1; 0 when the lease was another's already (the ledger is written all the same)
-- A renewal that is still under way finds its fence gone, and cannot revive what was given back.

redis.call('HSET', ledger, ARGV[4], ARGV[5])
if redis.call('HGET', fences, ARGV[1]) == ARGV[3] then redis.call('HDEL', fences, ARGV[1]) end
if redis.call('HGET', lease, 'fence') ~= ARGV[3] then return 0 end
redis.call('DEL', lease, baton)
redis.call('LPUSH', baton, 1)
redis.call('PEXPIRE', baton, 1000)
redis.call('HSET', seen, ARGV[2], now_ms())
return 1
