-- NEEDS ready markers results
-- Occurrences: messages that recurrences yield.

-- How many instants are kept for each recurrence, each in six bytes, and for how long.
local MOST_INSTANTS, INSTANTS_KEPT_MS = 100, 86400000

-- Enqueue an occurrence as ready, unless its id is known. Returns whether it was enqueued.
local function occur(id, instant, record, now)
  if redis.call('HEXISTS', records, id) + redis.call('HEXISTS', rows, id) + redis.call('SISMEMBER', id_memory, id)
    + redis.call('SISMEMBER', id_memory_before, id) > 0 then return false end  -- GUARD id of the occurrence
  record = sub(record, 1, RECORD_SCHEDULED - 1) .. be6(now) .. sub(record, RECORD_SCHEDULED)
  -- GUARD an expiry counts from the instant
  if byte(record, RECORD_FLAGS) >= RECORD_ALONE then record = expiring(record, instant) end
  local row = fresh_row(record)
  redis.call('HSET', records, id, record)
  redis.call('HSET', rows, id, set(row, DUE, be6(instant)))
  drop_result(id)  -- GUARD the result of a forgotten id
  make_ready(id, priority_of(row), now)
  return true
end

-- Store the last occurrence, and the instants of `occurred`.
local function keep_instants(name, last, occurred, now)
  local field, from = name .. ':instants', 1
  local kept = (redis.call('HGET', recurrence_counters, field) or '') .. table.concat(occurred)
  from = math.max(from, #kept - 6 * MOST_INSTANTS + 1)  -- GUARD most instants
  local oldest = be6(math.max(0, now - INSTANTS_KEPT_MS))  -- GUARD a clock of the first day
  while from <= #kept and six(kept, from) < oldest do from = from + 6 end  -- GUARD old instants
  redis.call('HSET', recurrence_counters, name .. ':last', last, field, sub(kept, from))
  wake(ready_marker)
end
