-- Renew a lease, and update the launch's ledger entry.
-- KEYS lease fences seen ledger
-- NEEDS watermarks
-- ARGV lease name, role, fence, ttl in ms, launch, holder as JSON, ledger entry as JSON
-- Returns 1; 0 if another launch holds the lease, or it was broken; -1 if the store was emptied; and the store's
--   watermark before and after
-- A lease that expired and that nobody took gets its fence back, since no higher one was given.

local now = now_ms()
local fence = redis.call('HGET', lease, 'fence')
if not fence and redis.call('HGET', fences, ARGV[1]) == ARGV[3] then  -- GUARD revived by its last holder alone
  redis.call('HSET', lease, 'fence', ARGV[3], 'seq', 0, 'since', now, 'launch', ARGV[5], 'holder', ARGV[6])
elseif fence ~= ARGV[3] then  -- GUARD owner compare
  local watermark = redis.call('HGET', fences, 'mark')
  watermark = whole(watermark) and watermark or '0'
  return {redis.call('HEXISTS', fences, 'last') - 1, watermark, watermark}
end
redis.call('HINCRBY', lease, 'seq', 1)
redis.call('PEXPIRE', lease, ARGV[4])
redis.call('HSET', seen, ARGV[2], now)
redis.call('HSET', ledger, ARGV[5], ARGV[7])
return {1, raise_watermark(0)}
