-- NEEDS places

-- Remove a message that is not reserved from the schedule or the ready ones. Removal from the middle of a list is O(n): the
-- id stays there as a duplicate until it is popped.
local function remove(id, row, record, state)
  if state == 'scheduled' then
    redis.call('ZREM', schedule, id)  -- GUARD cancelled leaves the schedule
    return
  end
  local _, key = concurrency(record)
  local was_in_line, waiting = in_line(row), has_flag(byte(row, FLAGS), WAITING)
  if was_in_line and key then redis.call('ZREM', waiting_for_place, line_entry(id, row, key)) end
  if priority_of(row) == 0 then
    if not was_in_line then count_up(DUPLICATES, 1) end
  elseif not waiting then
    redis.call('ZREM', ready_by_priority, id)
    if was_in_line then count_up(DUPLICATES, -1) end
  end
  if key and not waiting and offer_places(key) > 0 then wake(ready_marker) end
end
