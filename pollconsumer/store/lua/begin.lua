-- Record that messages are begun, since they are delivered at most once.
-- KEYS rows announced
-- NEEDS fences
-- ARGV lease name, fence; id, row as reserved and new row of each
-- Returns ids of messages that are not reserved by the caller any more (unchanged)
-- Refusals: FENCED if a newer launch has announced itself, FORGOTTEN if the store was emptied
-- Idempotent: a row that already has its new value counts as begun.

local refusal = refusal_of(ARGV[1], ARGV[2])  -- GUARD fence compare
if refusal then return refusal end

local stale = {}
for at = 3, #ARGV, 3 do
  local id, row, new_row = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local found = redis.call('HGET', rows, id)
  if found == row then  -- GUARD row compare
    redis.call('HSET', rows, id, new_row)
  elseif found ~= new_row then  -- GUARD a repeated beginning is not stale
    stale[#stale + 1] = id
  end
end
return stale
