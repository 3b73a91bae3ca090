-- Keep how far a message has come, for whoever handles it next.
-- KEYS m t y
-- ARGV lineage, fence, id, row as reserved, row to be, checkpoint
-- Returns 1; 0 when the reservation is no longer the caller's
-- Refusals: FENCED, FORGOTTEN

local refusal = not_ours(ARGV[1], ARGV[2])
if refusal then return refusal end
local row = redis.call('HGET', m, ARGV[3])
if row ~= ARGV[4] and row ~= ARGV[5] then return 0 end  -- as it is to be: the call is repeated
redis.call('HSET', y, ARGV[3], ARGV[6])
redis.call('HSET', m, ARGV[3], ARGV[5])
return 1
