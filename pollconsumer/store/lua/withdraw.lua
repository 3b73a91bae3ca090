-- Stop being the successor, and count the launch with the holder's entry of the ledger, since it found the lease held.
-- KEYS next lease ledger
-- NEEDS numbers
-- ARGV launch

local holder = redis.call('HGET', lease, 'launch')
local field = 'skipped:' .. (holder or '')
if holder and whole(redis.call('HGET', ledger, field) or '0') then redis.call('HINCRBY', ledger, field, 1) end
if redis.call('GET', next) == ARGV[1] then redis.call('DEL', next) end  -- GUARD owner compare
return 1
