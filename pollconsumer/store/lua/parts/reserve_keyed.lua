-- In a step, what is looked up together for a page, from the first message with a key on: concurrency keys, whose places are
-- counted, and of messages that were never reserved and have nothing else unusual their rows with the limits of these keys.
-- Mostly a record differs from an earlier one in keys and payload alone, and its first key is as long.

-- By what a record has before its first key; and of the one before, to look that up less often: its row and limit; where the
-- concurrency key begins, if it is the first one; where the first one ends; what follows the keys, up to the payload.
local likes, front, like, place_at, at, rest, more = {}, nil, nil, nil, 0, nil, 0
local size, count = 0, #counted

keyed, keys_of = {}, {}
for k = i, #ids do
  local found, usual, key = found_records[k], nil, nil
  if found and not found_rows[k] and #found <= 1024 then
    local head, from = sub(found, 1, size), nil
    if head ~= front and likes[head] then
      front, like = head, likes[head]
      place_at, at, rest, more = like.place_at, like.at, like.rest, like.more
    end
    if head == front then
      from = at
      if place_at then
        key = sub(found, place_at, at - 1)
      elseif like.most then
        local most, length = byte(found, at, at + 1)
        from = at + 2 + (length or 0)
        key = most == like.most and sub(found, at + 2, from - 1)
      end
      usual = key ~= false and sub(found, from, from + more) == rest and like
    end
  end
  local flags = not usual and byte(found or '', RECORD_FLAGS)
  if flags and flags > LARGE then
    local most, record, ends, begins
    most, key = concurrency(found)
    if not found_rows[k] and flags < RECORD_ALONE and not has_flag(flags, PARKED) then
      record, ends, begins = readable(found)
    end
    usual = ends and {row = first_row(record, ends, begins), most = most}
    if usual and #record <= 1024 then
      like, size, place_at, at = usual, RECORD_UNIQUE_KEY, nil, RECORD_UNIQUE_KEY + 1 + byte(record, RECORD_UNIQUE_KEY)
      if key and at == RECORD_UNIQUE_KEY + 1 then size, place_at, at = at + 1, at + 2, begins end
      front, rest, more = sub(record, 1, size), sub(record, begins, ends), ends - begins
      like.place_at, like.at, like.rest, like.more = place_at, at, rest, more
      likes[front] = like
    end
  end
  if key then
    keys_of[k] = key
    if not taken[key] then
      count = count + 1
      counted[count], taken[key] = key, 0
    end
  end
  keyed[k] = usual
end
count_places()
