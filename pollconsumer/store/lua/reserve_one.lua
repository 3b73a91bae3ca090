-- Reserve the next message for a launch that has been idle. It must be small, of priority 0, never reserved or
-- scheduled before, and neither a key nor a limit may hold it back. The quick form of `step.lua`.
-- KEYS records rows ready ready_by_priority in_flight counters announced ready_marker paused waiting_for_place successor_waits
-- NEEDS fences markers records
-- ARGV lease name, fence, fence in 6 bytes, ms that the reservation lasts at most
-- Returns its id, record and row; '' if none is ready; 0, with nothing changed, if the next message needs `step.lua`,
--   or if a successor waits
-- Refusals: those of `step.lua`
-- The row is written first, since that tells whether there was one. If the type of a later key has changed, the id is
-- in no list, which `repair.lua` repairs.

local refusal = refusal_of(ARGV[1], ARGV[2])  -- GUARD fence compare
if refusal then
  wake(ready_marker)
  return refusal
end
-- GUARD paused; priorities before others; a successor is handed over to
if redis.call('EXISTS', paused, ready_by_priority, successor_waits) > 0 then return 0 end
local now, next_ids = now_ms(), redis.call('LRANGE', ready, 0, 1)
local id = next_ids[1]
if id then
  local record, ends, at = readable(redis.call('HGET', records, id))
  local flags = record and byte(record, RECORD_FLAGS)
  if not record or #record > 1024 or has_flag(flags, CONCURRENCY) or has_flag(flags, RATE) then return 0 end
  local scheduled = sub(record, RECORD_SCHEDULED, RECORD_UNIQUE_KEY - 1)
  local row = char(flags % RECORD_ALONE) .. '\0' .. sub(record, RECORD_PRIORITY, RECORD_PRIORITY + 1) .. '\0\1\0\0' .. ARGV[3]
    .. be6(now) .. NEVER .. NEVER .. scheduled .. NEVER .. scheduled .. NEVER .. NEVER .. sub(record, at, ends - 1)
  if redis.call('HSETNX', rows, id, row) == 0 then return 0 end  -- GUARD one with a row is not new
  redis.call('LPOP', ready)
  redis.call('ZADD', in_flight, now + ARGV[4], id)
  if next_ids[2] then wake(ready_marker) end  -- GUARD another is woken for what is left
  return {id, record, row}
end
return (redis.call('ZCARD', waiting_for_place) > 0 or redis.call('HEXISTS', counters, DUPLICATES) == 1) and 0 or ''
