-- NEEDS places ended totals
-- Messages that were asked to stop while they were in flight. They are cancelled when their launch settles or releases
-- them, unless they are completed: then the request is kept until the message is deleted. Checkpoint and progress are
-- kept, too.

-- Count that a message is not in flight any more. Its concurrency key is added to `freed`, whose places are to be
-- offered. Returns its record.
local function without_place(id, row, freed)
  local record = keyed_record(id, row)
  local _, key = concurrency(record)
  if key then
    free_place(key)  -- GUARD the place is freed
    freed[#freed + 1] = key
  end
  return record
end

-- If a message in flight was asked to stop, and its launch is gone, cancel it, and delete the request.
local function stops_here(id, row, now, freed)
  if redis.call('HDEL', stops, id) == 0 then return false end
  count_settled(row, 'cancel', 1)
  redis.call('RPUSH', cancelled, id)
  ended(id, row, without_place(id, row, freed), 'x', now)
  return true
end

-- Ids in flight, with their rows, in the order in which they were reserved. `ids` are sorted by hard end.
local function by_reservation(ids, found_rows)
  local order = {}
  for i = 1, #ids do
    local row = well_formed(found_rows[i])
    order[i] = {id = ids[i], row = row, at = row and number6(row, RESERVED) or 0, rank = i}
  end
  table.sort(order, function(one, other)
    if one.at ~= other.at then return one.at < other.at end  -- GUARD order of reservation
    return one.rank < other.rank
  end)
  return order
end

-- For a message that was handed out and not begun: delete the instant of its reservation from its rate's ledger.
local function take_back_charge(id, reserved)
  local field = rate_and_key(readable(redis.call('HGET', records, id)))
  local held = field and redis.call('HGET', rates, field)
  local high, low = byte(held or '', 7, 8)
  local handed = low and high * 256 + low or 0
  for at = 3 + 6 * handed, 9, -6 do
    if sub(held, at, at + 5) == reserved then  -- GUARD charges taken back
      handed = handed - 1
      redis.call('HSET', rates, field, sub(held, 1, 6) .. char(floor(handed / 256), handed % 256)
        .. sub(held, 9, at - 1) .. sub(held, at + 6))
      break
    end
  end
end
