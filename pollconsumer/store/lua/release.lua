-- Give a lease back, wake the successor, close the launch's ledger entry.
-- KEYS lease baton seen ledger
-- ARGV role, fence, launch, ledger entry as JSON
-- Returns 1; 0 when the lease was another's already (the ledger is written all the same)

redis.call('HSET', ledger, ARGV[3], ARGV[4])
if redis.call('HGET', lease, 'fence') ~= ARGV[2] then return 0 end
redis.call('DEL', lease, baton)
redis.call('LPUSH', baton, 1)
redis.call('PEXPIRE', baton, 1000)
redis.call('HSET', seen, ARGV[1], now_ms())
return 1
