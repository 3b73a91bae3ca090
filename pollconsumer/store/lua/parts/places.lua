-- NEEDS ready markers
-- Concurrency keys. places_taken counts the messages in flight with each key. Each message in flight takes a place of
-- its key. A message that finds no free place waits in line; so does one that returns from being in flight. The line is
-- in waiting_for_place, sorted by key, then like ready messages. Each free place is offered to a message, the first in
-- line first: its id is put into the ready list as well, and counted as a duplicate, so that counts are right. The
-- others in line have the flag WAITING. Offering twice does no harm.
-- Order keys. The message of a key whose turn is next is the head: order_heads has its id until it has ended. The
-- others wait in line, in waiting_for_place as well, with the flag WAITING. A message leaves the line when it becomes
-- the head.

-- The limit of a record's concurrency key, and the key; nil if it has none, or if it is truncated.
local function concurrency(record)
  if not record or #record <= RECORD_UNIQUE_KEY or not has_flag(byte(record, RECORD_FLAGS), CONCURRENCY) then return nil end
  local at = RECORD_UNIQUE_KEY + 1 + byte(record, RECORD_UNIQUE_KEY)
  local most, length = byte(record, at, at + 1)
  if (length or 0) > 0 then return most, sub(record, at + 2, at + 1 + length) end
end

-- Prefix of an order key in waiting_for_place. Concurrency keys have no control characters.
local IN_ORDER = '\1'

local function in_line(row)
  return six(row, NUMBER_IN_LINE) ~= NEVER
end

local function line_entry(id, row, key)
  -- GUARD in order, whatever the clock shows
  local since = sub(key, 1, 1) == IN_ORDER and 0 or number6(row, ENQUEUED) + (priority_of(row) + 4096) * 3600000
  return key .. '\0' .. string.format('%013.0f', since) .. six(row, NUMBER_IN_LINE) .. id
end

-- An entry in line: the key, a zero, 13 digits, the number in six bytes, the id.
local function id_in_line(entry, key)
  return sub(entry, #key + 21)
end

local FIRST_NUMBER = 1099511627776

-- Put a message in line. Its number sorts those that became ready in the same ms; `first`: before all of these.
local function stand_in_line(id, row, key, first)
  if not in_line(row) then
    local count = count_up('stood in line', 1)
    row = set(row, NUMBER_IN_LINE, be6(FIRST_NUMBER + (first and -count or count)))
  end
  row = set(row, FLAGS, char(byte(row, FLAGS) + WAITING))
  redis.call('HSET', rows, id, row)
  redis.call('ZADD', waiting_for_place, 0, line_entry(id, row, key))
end

-- Make the next message in line the head of an order key, in place of `head`; false if there is none. Returns how many
-- messages become ready.
local function pass_on(key, head)
  if redis.call('HGET', order_heads, key) ~= head then return 0 end  -- GUARD the head alone passes on
  local line = IN_ORDER .. key
  while true do
    local entry = redis.call('ZRANGEBYLEX', waiting_for_place, '[' .. line .. '\0', '(' .. line .. '\1', 'LIMIT', 0, 1)[1]
    if not entry then
      redis.call('HDEL', order_heads, key)
      return 0
    end
    local id = id_in_line(entry, line)
    local row = well_formed(redis.call('HGET', rows, id))
    redis.call('ZREM', waiting_for_place, entry)
    if row and state_of(row) == 'ready' and line_entry(id, row, line) == entry then  -- GUARD what stands in line no longer
      redis.call('HSET', order_heads, key, id)
      row = set(row, FLAGS, char(without_flag(byte(row, FLAGS), WAITING)), NUMBER_IN_LINE, NEVER)
      redis.call('HSET', rows, id, row)
      push_front(id, row)
      return 1
    end
  end
end

-- For dead letters that are about to be deleted and hold their order keys: make the next message the head.
local function leave_order(ids)
  if redis.call('EXISTS', order_heads) == 0 then return end
  local found = redis.call('HMGET', records, unpack(ids))
  for i = 1, #ids do
    local key = order_key(found[i])
    if key and pass_on(key, ids[i]) > 0 then wake(ready_marker) end
  end
end

-- Offer the free places of a concurrency key. If the head of an order key is gone, since another program or an
-- interrupted script removed it, the next one becomes the head. Returns how many messages are newly offered a place.
local function offer_places(key)
  if sub(key, 1, 1) == IN_ORDER then
    key = sub(key, 2)
    local head = redis.call('HGET', order_heads, key)
    local _, state, record = message_of(head or '')
    local is_over = state ~= 'newer' and not record or state == 'completed' or state == 'cancelled' or state == 'expired'
    return is_over and pass_on(key, head) or 0  -- GUARD heads that have not ended
  end
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

-- Requeue a message that was in flight, with its new row.
local function return_to_queue(id, row)
  local _, key = concurrency(has_flag(byte(row, FLAGS), CONCURRENCY) and readable(redis.call('HGET', records, id)))
  if key then
    free_place(key)
    stand_in_line(id, row, key, true)
    offer_places(key)
  else
    redis.call('HSET', rows, id, row)
    push_front(id, row)
  end
end

-- Remove a message that is not reserved from the schedule or the ready ones. Removal from the middle of a list is slow,
-- so the id stays there as a duplicate until it is popped.
local function remove(id, row, record, state)
  if state == 'scheduled' then
    redis.call('ZREM', schedule, id)  -- GUARD cancelled leaves the schedule
    return
  end
  local _, key = concurrency(record)
  local was_in_line, waiting = in_line(row), has_flag(byte(row, FLAGS), WAITING)
  local ordered = waiting and order_key(record)
  if ordered then redis.call('ZREM', waiting_for_place, line_entry(id, row, IN_ORDER .. ordered)) end
  if was_in_line and key then redis.call('ZREM', waiting_for_place, line_entry(id, row, key)) end
  if priority_of(row) == 0 then
    if not was_in_line then count_up(DUPLICATES, 1) end
  elseif not waiting then
    redis.call('ZREM', ready_by_priority, id)
    if was_in_line then count_up(DUPLICATES, -1) end
  end
  if key and not waiting and offer_places(key) > 0 then wake(ready_marker) end
end
