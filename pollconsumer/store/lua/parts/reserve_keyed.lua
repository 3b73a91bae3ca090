-- In a step, what is looked up together for a batch, from the first message with a key on: concurrency keys, whose places are
-- counted, and of messages that were never reserved and have nothing else unusual their rows with the limits of these keys.
-- Mostly a record differs from the one before in keys and payload alone.

-- Of the one before: what its record has before its keys and from them to its payload, its row with its limit, and whether it has
-- either key.
local front, size, rest, like, with_key, with_place = nil, 0, nil, nil, false, false

keyed, keys_of = {}, {}
for k = i, #ids do
  local found, key = found_records[k], nil
  if found and not found_rows[k] and #found <= 1024 and sub(found, 1, size) == front then
    local at, most, length = size + 1, nil, nil
    if with_key then at = at + 1 + (byte(found, at) or 0) end
    if with_place then
      most, length = byte(found, at, at + 1)
      key = sub(found, at + 2, at + 1 + (length or 0))
      at = at + 2 + (length or 0)
    end
    if sub(found, at, at + #rest - 1) == rest then
      if most ~= like[2] then like = {like[1], most} end
      keyed[k] = like
    end
  end
  local flags = not keyed[k] and byte(found or '', RECORD_FLAGS)
  if flags and flags > LARGE then
    local usual, most, record, ends, begins = not found_rows[k] and flags < RECORD_ALONE and not has_flag(flags, PARKED)
    most, key = concurrency(found)
    if usual then record, ends, begins = readable(found) end
    if ends then
      with_key, with_place = has_flag(flags, UNIQUE), has_flag(flags, CONCURRENCY)
      size = with_key and RECORD_UNIQUE_KEY - 1 or RECORD_UNIQUE_KEY
      front, rest = #record <= 1024 and sub(record, 1, size), sub(record, begins, ends)
      like = {first_row(record, ends, begins), most}
      keyed[k] = like
    end
  end
  if key then
    keys_of[k] = key
    if not taken[key] then counted[#counted + 1], taken[key] = key, 0 end
  end
end
count_places()
