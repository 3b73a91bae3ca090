-- A marker is a list with at most one element, which stays until it is taken. So no wake-up is lost, and the list does
-- not grow.

local function wake(marker)
  if redis.call('EXISTS', marker) == 0 then redis.call('RPUSH', marker, 1) end
end
