-- NEEDS places schedule bookings
-- Change a message that is not reserved.

-- The row and the record with another payload. The row's flag LARGE and its digest are set by the record.
local function with_payload(row, record, payload)
  local _, ends, at = readable(record)
  record = sub(record, 1, ends) .. payload
  local flags = without_flag(byte(row, FLAGS), LARGE) + (#record > 1024 and LARGE or 0)
  return sub(set(row, FLAGS, char(flags)), 1, HANDLER - 1) .. row_name(record, at, ends), record
end

-- Take a message from its list, and let it wait anew: ready if it is due, else in the schedule. `row`: its new row;
-- `before`: the old one. If the head of an order key becomes due later than before, the next message becomes the head.
local function wait_anew(id, before, row, record, state, due, exactly)
  -- If its id were left in the list, it would be handed out too early, and be listed twice. The removal takes up to 60
  -- ms in a list of a million. Without the right to remove, the id is left: another due time does not need the removal.
  local may_be_listed = state == 'ready' and priority_of(before) == 0
    and (not redis.acl_check_cmd or redis.acl_check_cmd('LREM', ready, '1', id))
  if may_be_listed and redis.call('LREM', ready, 1, id) == 1 then  -- GUARD its turn
    count_up(DUPLICATES, -1)
  end
  local was_due = state == 'scheduled' and tonumber(redis.call('ZSCORE', schedule, id) or 0) / 1000 or exactly
  take_back_booking(id, before, record)
  remove(id, before, record, state)
  -- GUARD booked no longer
  row = set(row, FLAGS, char(without_flag(without_flag(byte(row, FLAGS), WAITING), BOOKED)), NUMBER_IN_LINE, NEVER)
  if due <= exactly then
    redis.call('HSET', rows, id, set(row, ENQUEUED, be6(floor(exactly)), NEXT_ATTEMPT, NEVER))
    make_ready(id, priority_of(row), floor(exactly))
    wake(ready_marker)
  else
    redis.call('HSET', rows, id, set(row, ENQUEUED, NEVER))
    put_in_schedule(id, due)
    local ordered = due > was_due and order_key(record)
    if ordered and pass_on(ordered, id) > 0 then wake(ready_marker) end  -- GUARD a later due time gives the place up
  end
end
