-- Why a holder is refused: FENCED if a newer one has announced itself, FORGOTTEN if the store knows none, as after it was
-- emptied. Nil if the fence is the announced one.

local function refusal_of(lineage, fence)
  local seen = redis.call('HGET', announced, lineage)
  if seen == fence then return nil end
  return redis.error_reply((seen and 'FENCED ' or 'FORGOTTEN ') .. lineage)
end
