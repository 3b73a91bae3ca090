-- NEEDS places

-- Take a message that is not reserved out of the schedule, or of the ready ones. Taking an id out of the middle of a list is
-- slow: it stays there as a duplicate until it is popped.
local function take_out(id, row, record, state)
  if state == 'scheduled' then
    redis.call('ZREM', schedule, id)
    return
  end
  local _, key = concurrency(record)
  local lined, waiting = in_line(row), has_flag(byte(row, FLAGS), WAITING)
  if lined and key then leave_line(id, row, key) end
  if priority_of(row) == 0 then
    if not lined then redis.call('HINCRBY', counters, DUPLICATES, 1) end
  elseif not waiting then
    redis.call('ZREM', ready_by_priority, id)
    if lined then redis.call('HINCRBY', counters, DUPLICATES, -1) end
  end
  if key and not waiting and offer_places(key) > 0 then wake(ready_marker) end
end
