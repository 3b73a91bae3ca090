-- Why a holder is refused: FENCED where a newer one has announced itself, FORGOTTEN where the store knows of none, as
-- after it was emptied. Nil where the fence is the one that was announced.

local function refusal_of(lineage, fence)
  local seen = redis.call('HGET', announced, lineage)
  if seen == fence then return nil end
  return redis.error_reply((seen and 'FENCED ' or 'FORGOTTEN ') .. lineage)
end
