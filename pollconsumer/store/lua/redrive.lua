-- Return dead letters to their queue, in a new generation, with no attempts used.
-- KEYS records rows ready ready_by_priority dead_letters unique_keys counters ready_marker checkpoints
-- KEYS waiting_for_place order_heads answered
-- NEEDS places unique_keys message_steps once
-- ARGV 1 to begin from the start, without checkpoints, steps and signals, else 0; for each: id, its generation when the
--   caller read it
-- Returns ids that this call has redriven. Skipped: ids that are no dead letters, or were redriven since; that have no
--   record; whose unique key another message holds now

local now, returned, in_order = now_ms(), {}, {}
-- EXPECT ready ready_marker ready_by_priority counters waiting_for_place order_heads
for i = 2, #ARGV, 2 do
  local id, row = ARGV[i], well_formed(redis.call('HGET', rows, ARGV[i]))
  -- GUARD generation compare
  local redriven = (row and byte(row, GENERATION) or 0) > tonumber(ARGV[i + 1])
  -- GUARD dead letters alone
  local record = redis.call('ZSCORE', dead_letters, id) and readable(redis.call('HGET', records, id))
  local key = record and unique_key(record) or ''
  local holder = key ~= '' and holder_of(key, now)
  if record and not redriven and (not holder or holder == id) then  -- GUARD unique key of another
    if key ~= '' then redis.call('HSET', unique_keys, key, id) end
    row = row or fresh_row(record)
    local flags = without_flag(byte(row, FLAGS), BEGUN)
    if ARGV[1] == '1' then  -- from the start
      drop_checkpoints({id})
      flags = without_flag(flags, CHECKPOINT)
    end
    redis.call('ZREM', dead_letters, id)  -- GUARD removed from the dead letters
    row = set(row, FLAGS, char(flags) .. '\0',
      ATTEMPTS, '\0\0', CRASHES, '\0', GENERATION, char(math.min(byte(row, GENERATION) + 1, 255)),
      RESERVED, NEVER, STARTED, NEVER, ENDED, NEVER, DUE, be6(now), ENQUEUED, be6(now), NEXT_ATTEMPT, NEVER)
    local ordered = order_key(record)
    if ordered and redis.call('HGET', order_heads, ordered) ~= id then
      -- GUARD redriven ones are the next of their key, in the order in which they were accepted
      row = set(row, NUMBER_IN_LINE, be6(floor(number6(record, RECORD_SCHEDULED) / 2)))
      stand_in_line(id, row, IN_ORDER .. ordered)
      in_order[#in_order + 1] = ordered
    else
      redis.call('HSET', rows, id, row)
      make_ready(id, priority_of(row), now)
    end
    returned[#returned + 1] = id
  end
end
-- GUARD the first of the redriven is the head where there is none
for i = 1, #in_order do pass_on(in_order[i], false) end
if #returned > 0 then wake(ready_marker) end
return returned
