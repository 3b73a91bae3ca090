-- NEEDS numbers
-- The mark of a namespace rises with each acquisition, renewal and release of a lease, and is not below the server's
-- clock: whoever has seen a higher one knows that the store went back.

-- Returns the mark before, and the new one, which is above `known`.
local function raise_mark(known)
  local found = redis.call('HGET', fences, 'mark')
  local before = whole(found) and tonumber(found) or 0
  local mark = decimal(math.max(before + 1, now_ms(), known + 1))  -- GUARD the mark rises
  redis.call('HSET', fences, 'mark', mark)
  return decimal(before), mark
end
