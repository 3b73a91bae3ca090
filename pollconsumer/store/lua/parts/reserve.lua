-- The second part of a step: reserve messages.

-- Limits the time for ids that cannot be reserved.
local MOST_LOOKED_AT = 100
local NEWER_WAITS_MS = 60000

local new_rows, flight, seen = {}, {0, LONG}, {}  -- seen: ids popped
local hard_end, since = now + tonumber(ARGV[4]), ARGV[3] .. be6(now)
local duplicates, rate, last_row = 0, nil, nil  -- rate: its functions, once a message has one

local function pop(count)
  if ranked == 0 then return redis.call('LPOP', ready, count) or {} end
    -- When a message of priority 0 became ready, as a tick; 0 for a duplicate.
    local function tick_of(id)
      local row = redis.call('HGET', rows, id)
      if row then return well_formed(row) and state_of(row) == 'ready' and number6(row, ENQUEUED) * TICKS or 0 end
      local record = readable(redis.call('HGET', records, id))
      return record and number6(record, RECORD_SCHEDULED) * TICKS or 0
    end

    local ids = {}
    while #ids < count do
      local wanted_still, popped = count - #ids, nil
      local score = tonumber(redis.call('ZRANGE', ready_by_priority, 0, 0, 'WITHSCORES')[2])
      local first = redis.call('LINDEX', ready, 0)
      local tick = first and tick_of(first)
      if first and (not score or tick <= score) then
        local run = math.min(wanted_still, redis.call('LLEN', ready))
        local last_tick = score and tick_of(redis.call('LINDEX', ready, run - 1))
        local whole_run = not score or last_tick > 0 and last_tick <= score
        popped = redis.call('LPOP', ready, whole_run and run or 1)
      elseif score then
        local below = first and '(' .. decimal(tick) or '+inf'
        popped = redis.call('ZRANGEBYSCORE', ready_by_priority, '-inf', below, 'LIMIT', 0, wanted_still)
        redis.call('ZREM', ready_by_priority, unpack(popped))
      else
        break
      end
      for i = 1, #popped do ids[#ids + 1] = popped[i] end
    end
    return ids
end

local function make_dead(id, row, record, problem)
  row = row or record and fresh_row(record) or '\0\0\128\0\0\0\0\0' .. string.rep(NEVER, 9)
  if has_flag(byte(row, FLAGS), PARKED) then redis.call('SREM', parked, id) end
  count_settled(row, 'dead', 1)
  problem = 'malformed: ' .. problem
  row = end_as_dead(id, row, record, now, problem)
  local at = #malformed
  malformed[at + 1], malformed[at + 2], malformed[at + 3] = id, row, problem
end

-- Hand out a popped message. Returns whether that was possible; and, if not, whether it waits for the head of its order
-- key. If not, another message may be handed out in its place.
local function reserve(id, found_row, found_record)
  local row, record = well_formed(found_row), readable(found_record)
  -- GUARD state of what is popped; id popped twice
  if seen[id] or row and (state_of(row) ~= 'ready' or has_flag(byte(row, FLAGS), WAITING)) then
    duplicates = duplicates + 1
    return false
  end
  if newer(found_record) then  -- GUARD records of a newer version
    if row and in_line(row) then duplicates = duplicates + 1 end
    local ordered = order_key(found_record)
    if ordered then redis.call('HSETNX', order_heads, ordered, id) end  -- GUARD one of a newer version holds
    put_in_schedule(id, now + NEWER_WAITS_MS)  -- unchanged
    newer_ones = newer_ones + 1
    return false
  elseif found_row and not row then
    make_dead(id, nil, record, 'its row cannot be read')
    return false
  elseif not record then
    if not found_row and not found_record and (tonumber(redis.call('HGET', counters, DUPLICATES) or 0) or 0) > duplicates then
      duplicates = duplicates + 1
    else
      if row and in_line(row) then duplicates = duplicates + 1 end
      make_dead(id, row, nil, found_record and 'its record cannot be read' or 'its record is missing')
    end
    return false
  end
  local flags, most, key, was_in_line, ordered = byte(record, RECORD_FLAGS), nil, nil, false, nil
  if has_flag(flags, CONCURRENCY) then
    most, key = concurrency(record)
    was_in_line = key and row and in_line(row)
    if was_in_line then duplicates = duplicates + 1 end
    ordered = order_key(record)
  end
  row = row or fresh_row(record)
  if has_flag(byte(row, FLAGS), PARKED) then
    redis.call('SREM', parked, id)
    row = set(row, FLAGS, char(byte(row, FLAGS) - PARKED))
  end
  if ordered then
    local head = redis.call('HGET', order_heads, ordered)
    if head and head ~= id then  -- GUARD the head of an order key alone
      stand_in_line(id, row, IN_ORDER .. ordered)
      return false, true
    end
    if not head then redis.call('HSET', order_heads, ordered, id) end
  end
  local rated = has_flag(flags, RATE)
  if rated and not rate then
-- PART rates
  end
  if rated and rate.waits(id, row, record) then
    if was_in_line then
      redis.call('ZREM', waiting_for_place, line_entry(id, row, key))
      returned_keys[#returned_keys + 1] = key
    end
    return false
  end
  if key then
    count_place(key, 0)
    count_places()
  end
  if key and taken[key] >= most then  -- GUARD places of a concurrency key
    stand_in_line(id, row, key)
    return false
  end
  if key then count_place(key, 1) end
  if was_in_line then redis.call('ZREM', waiting_for_place, line_entry(id, row, key)) end
  if rated then row = rate.charge(row, record) end
  -- GUARD attempts counted
  row = sub(row, FLAGS, PRIORITY + 1) .. attempts_bytes(math.min(attempts_of(row) + 1, 65535)) .. sub(row, CRASHES, GENERATION)
    .. since .. NEVER .. sub(row, ENDED)
  count = count + 1
  new_rows[2 * count - 1], new_rows[2 * count] = id, row
  -- Hard ends differ by a millisecond, so that messages can be returned in this order.
  flight[2 * count + 1], flight[2 * count + 2] = hard_end + count - 1, id  -- GUARD order within a page
  reserved_ids[count], reserved_records[count] = id, record
  if row ~= last_row then
    last_row = row
    reserved_rows[#reserved_rows + 1], reserved_rows[#reserved_rows + 2] = count, row
  end
  return true
end

local looked = 0
while more and looked < MOST_LOOKED_AT do
  local ids = pop(wanted - count)
  looked, more = looked + #ids, false
  local found_rows = #ids > 0 and redis.call('HMGET', rows, unpack(ids))
  local found_records = #ids > 0 and redis.call('HMGET', records, unpack(ids))
  local in_order = {}  -- those that wait for the head of their order key
  for i = 1, #ids do
    local handed, waits = reserve(ids[i], found_rows[i], found_records[i])
    more, seen[ids[i]] = not handed or more, true
    if waits then in_order[#in_order + 1] = ids[i] end
  end
  for i = 1, #in_order do seen[in_order[i]] = nil end  -- a head that has died makes the next one ready
end
if count > 0 then
  redis.call('HSET', rows, unpack(new_rows))
  redis.call('ZADD', in_flight, unpack(flight, count > FEW and 1 or 3))
  if count > FEW then redis.call('ZREM', in_flight, LONG) end
  if sixtieth then redis.call('HINCRBY', handed_out, decimal(floor(now / sixtieth)), count) end  -- GUARD quota counted
end
if rate then rate.keep_ledgers() end
-- A repeated id that another program has pushed was never counted as a duplicate.
local repeated = duplicates > 0 and tonumber(redis.call('HGET', counters, DUPLICATES) or 0) or 0
if repeated > 0 then count_up(DUPLICATES, -math.min(duplicates, repeated)) end
available = available - looked
