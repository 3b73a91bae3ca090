-- NEEDS unique_keys outbox places
-- Ends of messages that are not completed; `settle.lua` completes messages. docs/reference/internals.md has a table of
-- what each end frees and keeps. A message is listed first: if that fails, it has not ended.

-- The record of a message with a key, which its end must free.
local function keyed_record(id, row)
  local flags = byte(row, FLAGS)
  return (has_flag(flags, UNIQUE) or has_flag(flags, CONCURRENCY)) and readable(redis.call('HGET', records, id))
end

-- What all ends have in common. The message ends now, unless its row already says so. `holds`: the next message with
-- its order key goes on waiting. Returns the new row.
local function ended(id, row, record, ending, now, holds)
  local flags = byte(row, FLAGS)
  if sub(row, ENDING, ENDING) ~= ending then
    -- GUARD booked no longer; parked no longer
    local still, instant = without_flag(without_flag(without_flag(flags, PARKED), WAITING), BOOKED), six(row, ENDED)
    if instant == NEVER then instant = be6(now) end  -- GUARD the instant of the row
    if six(row, RESERVED) == NEVER then row = set(row, NUMBER_IN_LINE, NEVER) end  -- GUARD no start while it is in line
    row = set(row, FLAGS, char(still) .. ending, ENDED, instant)
  end
  local stored, at, continuation_at = readable(record or redis.call('HGET', records, id)), nil, nil
  -- Its continuation, as JSON: what follows from its end.
  if stored and byte(stored, RECORD_VERSION) == FLAGGED_VERSION then at, continuation_at = handler_at(stored) end
  -- GUARD an end is told
  if continuation_at then report_end('"as":"' .. ending .. '","ids":"' .. id .. '","sequel":' .. sub(stored, continuation_at, at - 1), now) end
  redis.call('HSET', rows, id, row)
  if record and has_flag(flags, UNIQUE) then free_keys({id}, {unique_key(record)}) end  -- GUARD the unique key is freed
  -- GUARD a large record is dropped; a dead letter keeps its record
  if ending ~= 'd' and has_flag(flags, LARGE) then redis.call('HDEL', records, id) end
  local ordered = not holds and has_flag(flags, CONCURRENCY) and order_key(stored)
  if ordered and pass_on(ordered, id) > 0 then wake(ready_marker) end  -- GUARD a head that has ended passes on
  return row
end

local function end_as_dead(id, row, record, now, why, holds)
  local instant = number6(row, ENDED)
  redis.call('ZADD', dead_letters, instant > 0 and instant or now, id)
  if why then redis.call('HSET', errors, id, why) end
  return ended(id, row, record, 'd', now, holds)
end
