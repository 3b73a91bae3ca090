-- NEEDS places unique_keys totals
-- Messages that were to stop while they were in hand. They end as cancelled when they leave their launch, unless they are
-- completed; the request then stays until the message is forgotten. Checkpoint and progress stay, too.

-- Whether it was to stop. Drops the request.
local function was_to_stop(id)
  return redis.call('HDEL', stops, id) == 1
end

-- End it as cancelled, when its row says that it ended, else now.
local function cancel_stopped(id, row, now)
  local ended = six(row, ENDED)
  if ended == NEVER then ended = be6(now) end
  row = set(row, FLAGS, char(without_flag(byte(row, FLAGS), PARKED)) .. 'x', ENDED, ended)
  redis.call('HSET', rows, id, row)
  redis.call('RPUSH', cancelled, id)
end

-- The same for one that is still in flight; if it was to stop. The keys of places to be offered are added to `freed`.
local function stops_here(id, row, now, freed)
  if not was_to_stop(id) then return false end
  local flags = byte(row, FLAGS)
  local record = (has_flag(flags, UNIQUE) or has_flag(flags, CONCURRENCY)) and readable(redis.call('HGET', records, id))
  if record and has_flag(flags, UNIQUE) then free_keys({id}, {unique_key(record)}) end
  local _, key = concurrency(record)
  if key then
    free_place(key)
    freed[#freed + 1] = key
  end
  if has_flag(flags, LARGE) then redis.call('HDEL', records, id) end
  count_settled(row, 'cancel', 1)
  cancel_stopped(id, row, now)
  return true
end
