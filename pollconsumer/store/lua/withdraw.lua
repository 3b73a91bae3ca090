-- Stop being the successor. The holder's entry in the ledger counts the launch, since it found the lease held. A
-- repetition does not count it again, since its claim is gone.
-- KEYS next lease ledger
-- NEEDS numbers
-- ARGV launch

if redis.call('GET', next) ~= ARGV[1] then return 1 end  -- GUARD owner compare
redis.call('DEL', next)
local holder = redis.call('HGET', lease, 'launch')
local field = 'skipped:' .. (holder or '')
if holder and whole(redis.call('HGET', ledger, field) or '0') then redis.call('HINCRBY', ledger, field, 1) end
return 1
