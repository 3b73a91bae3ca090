-- NEEDS numbers
-- The watermark of a namespace rises whenever a lease is acquired, renewed or released, and is not below the server's
-- clock. So a process that has seen a higher one knows that the store was rolled back.

-- Returns the watermark before, and the new one, which is above `known`.
local function raise_watermark(known)
  local found = redis.call('HGET', fences, 'mark')
  local before = whole(found) and tonumber(found) or 0
  local watermark = decimal(math.max(before + 1, now_ms(), known + 1))  -- GUARD the watermark rises
  redis.call('HSET', fences, 'mark', watermark)
  return decimal(before), watermark
end
