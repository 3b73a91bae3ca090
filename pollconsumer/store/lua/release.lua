-- Release a lease, wake the successor, complete the launch's ledger entry.
-- KEYS lease baton fences seen ledger totals
-- NEEDS watermarks
-- ARGV lease name, role, fence, launch, ledger entry as JSON
-- Returns the store's new watermark; 1, or 0 if another launch held the lease already (the ledger is still written)
-- Its fence is deleted, so a concurrent renewal cannot get the lease back.
-- The launch is counted when its entry has a stop reason for the first time: within JSON texts, quotes are escaped.

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
