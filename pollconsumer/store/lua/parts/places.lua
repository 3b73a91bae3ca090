-- NEEDS ready markers
-- Concurrency keys. places_taken counts messages in flight with each. A message whose key has no free place waits in line,
-- as does one that returns from being in flight: in waiting_for_place, ordered by key, then like ready messages. As many
-- as there are free places, from the first in line, are offered one: these are in the ready list as well, and the
-- duplicates correct the count. All others in line have the flag WAITING. Offering is idempotent.

-- The limit of a record's concurrency key, and the key; nil if it has none, or if it is truncated.
local function concurrency(record)
  if not record or #record <= RECORD_UNIQUE_KEY or not has_flag(byte(record, RECORD_FLAGS), CONCURRENCY) then return nil end
  local at = RECORD_UNIQUE_KEY + 1 + byte(record, RECORD_UNIQUE_KEY)
  local most, length = byte(record, at, at + 1)
  if length then return most, sub(record, at + 2, at + 1 + length) end
end

local function in_line(row)
  return six(row, NUMBER_IN_LINE) ~= NEVER
end

local function line_entry(id, row, key)
  local since = number6(row, ENQUEUED) + (priority_of(row) + 4096) * 3600000
  return key .. '\0' .. string.format('%013.0f', since) .. six(row, NUMBER_IN_LINE) .. id
end

-- An entry is the key, a zero, 13 digits, the number in six bytes, the id.
local function id_in_line(entry, key)
  return sub(entry, #key + 21)
end

-- The row and the entry of a message that must wait in line. The number orders those that became ready in the same ms; one
-- that returns to the line has a number below FIRST_NUMBER.
local FIRST_NUMBER = 1099511627776

local function waiting_row(id, row, key, number)
  if not in_line(row) then row = set(row, NUMBER_IN_LINE, be6(number)) end
  return set(row, FLAGS, char(byte(row, FLAGS) + WAITING)), line_entry(id, row, key)
end

-- Offer the free places of a key. Returns how many messages are newly offered one.
local function offer_places(key)
  local from, to = '[' .. key .. '\0', '(' .. key .. '\1'
  local line = redis.call('ZRANGEBYLEX', waiting_for_place, from, to, 'LIMIT', 0, 1)
  if #line == 0 then return 0 end
  local taken = tonumber(redis.call('HGET', places_taken, key) or 0) or 0  -- GUARD places that are no number
  local most = concurrency(readable(redis.call('HGET', records, id_in_line(line[1], key)))) or taken + 1
  if most - taken < 1 then return 0 end
  if most - taken > 1 then line = redis.call('ZRANGEBYLEX', waiting_for_place, from, to, 'LIMIT', 0, most - taken) end
  local offered = 0
  for i = #line, 1, -1 do
    local id = id_in_line(line[i], key)
    local row = well_formed(redis.call('HGET', rows, id))
    if row and state_of(row) == 'ready' and line_entry(id, row, key) == line[i] then
      if has_flag(byte(row, FLAGS), WAITING) then
        redis.call('HSET', rows, id, set(row, FLAGS, char(byte(row, FLAGS) - WAITING)))
        count_up(DUPLICATES, 1)
        push_front(id, row)
        offered = offered + 1
      end
    else
      redis.call('ZREM', waiting_for_place, line[i])
      if not row then redis.call('LPUSH', ready, id) end  -- the step that pops it handles the missing row
      offered = offered + (row and 0 or 1)
    end
  end
  return offered
end

local function free_place(key)
  local left = (tonumber(redis.call('HGET', places_taken, key)) or 0) - 1
  if left > 0 then redis.call('HSET', places_taken, key, left) else redis.call('HDEL', places_taken, key) end
end

-- Return a message from being in flight, with its new row.
local function return_to_queue(id, row)
  local _, key = concurrency(has_flag(byte(row, FLAGS), CONCURRENCY) and readable(redis.call('HGET', records, id)))
  if key then
    free_place(key)
    local number = FIRST_NUMBER - count_up('stood in line', 1)
    local stands, entry = waiting_row(id, row, key, number)
    redis.call('HSET', rows, id, stands)
    redis.call('ZADD', waiting_for_place, 0, entry)
    offer_places(key)
  else
    redis.call('HSET', rows, id, row)
    push_front(id, row)
  end
end

-- Remove a message that is not reserved from the schedule or the ready ones. Removal from the middle of a list is O(n): the
-- id stays there as a duplicate until it is popped.
local function remove(id, row, record, state)
  if state == 'scheduled' then
    redis.call('ZREM', schedule, id)  -- GUARD cancelled leaves the schedule
    return
  end
  local _, key = concurrency(record)
  local was_in_line, waiting = in_line(row), has_flag(byte(row, FLAGS), WAITING)
  if was_in_line and key then redis.call('ZREM', waiting_for_place, line_entry(id, row, key)) end
  if priority_of(row) == 0 then
    if not was_in_line then count_up(DUPLICATES, 1) end
  elseif not waiting then
    redis.call('ZREM', ready_by_priority, id)
    if was_in_line then count_up(DUPLICATES, -1) end
  end
  if key and not waiting and offer_places(key) > 0 then wake(ready_marker) end
end
