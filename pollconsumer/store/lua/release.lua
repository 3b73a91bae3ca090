-- Release a lease, wake the successor, close the launch's ledger entry.
-- KEYS lease baton fences seen ledger totals
-- NEEDS watermarks
-- ARGV lease name, role, fence, launch, ledger entry as JSON
-- Returns the store's new watermark, and 1; 0 when another held the lease already (the ledger is still written)
-- Without its fence, a concurrent renewal cannot revive the lease.
-- The launch is counted when its entry first has a stop reason: quotes within a JSON text are escaped.

local reason = string.match(ARGV[5], '"stop_reason": "([a-z_]+)"')
-- GUARD a launch is counted once
if reason and string.find(redis.call('HGET', ledger, ARGV[4]) or '', '"stop_reason": null', 1, true) then
  local name = 'launches\n' .. ARGV[2] .. '\n' .. reason
  redis.call('HSET', totals, name, decimal((tonumber(redis.call('HGET', totals, name) or '') or 0) + 1))
end
redis.call('HSET', ledger, ARGV[4], ARGV[5])
-- GUARD fence taken back; fence taken back by its owner alone
if redis.call('HGET', fences, ARGV[1]) == ARGV[3] then redis.call('HDEL', fences, ARGV[1]) end
local _, watermark = raise_watermark(0)
if redis.call('HGET', lease, 'fence') ~= ARGV[3] then return {watermark, 0} end  -- GUARD owner compare
redis.call('DEL', lease, baton)
redis.call('LPUSH', baton, 1)
redis.call('PEXPIRE', baton, 1000)
redis.call('HSET', seen, ARGV[2], now_ms())
return {watermark, 1}
