-- Cancel messages that are not reserved.
-- KEYS records rows ready ready_by_priority schedule unique_keys counters cancelled parked places_taken
-- KEYS waiting_for_place order_heads checkpoints ready_marker outbox rates answered
-- NEEDS places ended message_steps bookings once
-- ARGV ids
-- Returns for each: '' if this call cancelled it, or removed it since it was malformed; its state if it is reserved or
--   has ended; 'newer' if a newer version wrote its record; 'none' if there is no such message

local answers, now = {}, now_ms()
-- EXPECT cancelled ready ready_marker outbox schedule ready_by_priority waiting_for_place counters rates
for i, id in ipairs(ARGV) do
  local row, state, record = message_of(id)
  if state == 'scheduled' or state == 'ready' then  -- GUARD state
    take_back_booking(id, row, record)
    remove(id, row, record, state)
    if has_flag(byte(row, FLAGS), PARKED) then redis.call('SREM', parked, id) end
    drop_checkpoints({id})  -- GUARD the checkpoint is dropped
    redis.call('RPUSH', cancelled, id)
    ended(id, row, record, 'x', now)
    state = ''
  elseif not state and redis.call('ZREM', schedule, id) == 1 then  -- GUARD a malformed message that waits
    redis.call('HDEL', records, id)
    state = ''
  end
  answers[i] = state or 'none'
end
return answers
