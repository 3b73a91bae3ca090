-- NEEDS places ended totals
-- Messages that were to stop while they were in hand. They end as cancelled when they leave their launch, unless they are
-- completed; the request then stays until the message is forgotten. Checkpoint and progress stay, too.

-- Whether it was to stop. Drops the request.
local function was_to_stop(id)
  return redis.call('HDEL', stops, id) == 1
end

-- Free the place of a message in flight, whose key is added to `freed`: places to be offered. Returns its record.
local function without_place(id, row, freed)
  local record = keyed_record(id, row)
  local _, key = concurrency(record)
  if key then
    free_place(key)  -- GUARD the place is freed
    freed[#freed + 1] = key
  end
  return record
end

-- Cancel a message that is in flight without its launch, if it was to stop.
local function stops_here(id, row, now, freed)
  if not was_to_stop(id) then return false end
  count_settled(row, 'cancel', 1)
  end_as_cancelled(id, row, without_place(id, row, freed), now)
  return true
end
