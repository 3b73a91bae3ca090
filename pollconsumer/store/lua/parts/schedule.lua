-- NEEDS numbers markers

-- Put a message into the schedule. Wake the mover if it is due before all others there.
local function put_in_schedule(id, due)
  local head = redis.call('ZRANGE', schedule, 0, 0, 'WITHSCORES')[2]
  redis.call('ZADD', schedule, due_score(due), id)
  if not head or due * 1000 < tonumber(head) then wake(schedule_marker) end
end
