-- Nil if the fence is the announced one. Else why the holder is refused: FENCED if another fence or lease is announced,
-- FORGOTTEN if none is, as after the store was emptied.

local function refusal_of(lease_name, fence)
  local seen = redis.call('HGET', announced, lease_name)
  if seen == fence then return nil end
  return redis.error_reply((redis.call('EXISTS', announced) == 1 and 'FENCED ' or 'FORGOTTEN ') .. lease_name)
end
