-- In a step, what is looked up together for a batch, from the first message with a key on: the rows of those that were never
-- reserved and have nothing else unusual, their concurrency keys and limits. Those of a corrupt record are not used. Mostly
-- a record differs from the one before in keys and payload alone.

-- Of the one before: what its record has before its keys and from them to its payload, whether it has either key, its row.
local front, size, rest, alike, with_key, with_place = nil, 0, nil, nil, false, false
local keys, count = {}, 0

keyed, keys_of, limits_of = {}, {}, {}
for k = i, #ids do
  local found, most, key, length = found_records[k], nil, nil, nil
  if found and not found_rows[k] and #found <= 1024 and sub(found, 1, size) == front then
    local at = size + 1
    if with_key then at = at + 1 + (byte(found, at) or 0) end
    if with_place then
      most, length = byte(found, at, at + 1)
      key = sub(found, at + 2, at + 1 + (length or 0))
      at = at + 2 + (length or 0)
    end
    if sub(found, at, at + #rest - 1) == rest then keyed[k] = alike end
  end
  local flags = not keyed[k] and byte(found or '', RECORD_FLAGS)
  if flags and flags > LARGE then
    most, key = concurrency(found)
    local record, ends, begins = readable(found)
    if ends and not found_rows[k] and flags < RECORD_ALONE and not has_flag(flags, PARKED) then
      keyed[k] = first_row(record, ends, begins)
      with_key, with_place = has_flag(flags, UNIQUE), has_flag(flags, CONCURRENCY)
      size = with_key and RECORD_UNIQUE_KEY - 1 or RECORD_UNIQUE_KEY
      front, rest, alike = #record <= 1024 and sub(record, 1, size), sub(record, begins, ends), keyed[k]
    end
  end
  if key then
    count = count + 1
    keys[count], keys_of[k], limits_of[k] = key, key, most
  end
end
count_places(keys)
