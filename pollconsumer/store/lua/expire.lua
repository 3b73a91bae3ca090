-- Expire messages in a queue that no launch serves. In other queues, a message expires when it would be reserved.
-- KEYS records rows ready ready_by_priority schedule unique_keys counters expired parked places_taken
-- KEYS waiting_for_place order_heads checkpoints ready_marker outbox served rates totals
-- NEEDS places ended message_steps bookings totals
-- ARGV records to examine, approximately
-- Returns messages ended; 1 if all records have been examined, or the queue is served
-- Goes on where the last call ended.

if redis.call('EXISTS', served) == 1 then return {0, 1} end  -- GUARD a served queue is left to its launches
-- EXPECT ready expired ready_marker outbox ready_by_priority schedule waiting_for_place
-- EXPECT unique_keys counters places_taken checkpoints parked rates
local now, count = now_ms(), 0
local from = redis.call('HGET', counters, 'expired to')
if not whole(from) then from = '0' end
local page = redis.call('HSCAN', records, from, 'COUNT', ARGV[1])
local to, entries = tostring(page[1]), page[2]
for i = 1, #entries, 2 do
  local at = readable(entries[i + 1]) and expiry_at(entries[i + 1])
  if at and number6(entries[i + 1], at) <= now then  -- GUARD what has expired alone
    local id = entries[i]
    local row, state, record = message_of(id)
    local waits = state == 'scheduled' or state == 'ready'  -- GUARD state
    -- GUARD a redriven message does not expire; begun by its first step
    if waits and byte(row, GENERATION) == 0 and redis.call('HEXISTS', checkpoints, id .. '\n1') == 0 then
      take_back_booking(id, row, record)
      remove(id, row, record, state)
      if has_flag(byte(row, FLAGS), PARKED) then redis.call('SREM', parked, id) end
      drop_checkpoints({id})  -- GUARD the checkpoint is dropped
      redis.call('RPUSH', expired, id)
      ended(id, row, record, 'e', now)
      count_settled(row, 'expire', 1)
      count = count + 1
    end
  end
end
if to ~= from then redis.call('HSET', counters, 'expired to', to) end
write_totals()
return {count, to == '0' and 1 or 0}
