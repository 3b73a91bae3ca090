-- Store a message's checkpoint, or one of its steps, for its next attempt.
-- KEYS rows announced checkpoints
-- NEEDS fences
-- ARGV lease name, fence, id, row as reserved, new row; fields of checkpoints, and their values
-- Returns 1; 0 if the message is not reserved by the caller any more
-- Refusals: FENCED, FORGOTTEN

local refusal = refusal_of(ARGV[1], ARGV[2])  -- GUARD fence compare
if refusal then return refusal end
local row = redis.call('HGET', rows, ARGV[3])
if row ~= ARGV[4] and row ~= ARGV[5] then return 0 end  -- the new row already: a repeated call  -- GUARD row compare
redis.call('HSET', checkpoints, unpack(ARGV, 6))
redis.call('HSET', rows, ARGV[3], ARGV[5])
return 1
