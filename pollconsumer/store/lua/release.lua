-- Release a lease, wake the successor, close the launch's ledger entry.
-- KEYS lease baton fences seen ledger
-- NEEDS numbers
-- ARGV lineage, role, fence, launch, ledger entry as JSON
-- Returns 1; 0 when another held the lease already (the ledger is still written)
-- Without its fence, a concurrent renewal cannot revive the lease.

redis.call('HSET', ledger, ARGV[4], ARGV[5])
if redis.call('HGET', fences, ARGV[1]) == ARGV[3] then redis.call('HDEL', fences, ARGV[1]) end
if redis.call('HGET', lease, 'fence') ~= ARGV[3] then return 0 end
redis.call('DEL', lease, baton)
redis.call('LPUSH', baton, 1)
redis.call('PEXPIRE', baton, 1000)
redis.call('HSET', seen, ARGV[2], now_ms())
return 1
