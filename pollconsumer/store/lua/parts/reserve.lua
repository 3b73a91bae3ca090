-- The second part of a step: reserve.

-- Bounds the time spent on ids that cannot be reserved.
local MOST_LOOKED_AT = 100
local ASIDE_MS = 60000

-- A sorted set of up to 128 short members is a list, which each insertion searches from its beginning. A long one, added
-- first and removed at once, makes it a skip list until it is empty. It pays from some twenty on.
local LONG = 'longer than a server would keep in a list: see zset-max-listpack-value'
local FEW = 16

local new_rows, flight = {}, {0, LONG}
local seen = {}  -- ids popped
local hard_end = now + tonumber(ARGV[4])

-- The tick at which a message of priority 0 became ready; 0 for a duplicate.
local function tick_of(id)
  local row = redis.call('HGET', rows, id)
  if row then return well_formed(row) and state_of(row) == 'ready' and number6(row, ENQUEUED) * TICKS or 0 end
  local record = readable(redis.call('HGET', records, id))
  return record and number6(record, RECORD_SCHEDULED) * TICKS or 0
end

-- Merges the list of priority 0 with the sorted set of others, unless the set is empty.
local function pop(count)
  if ranked == 0 then return redis.call('LPOP', ready, count) or {} end
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
  local flags = byte(row, FLAGS)
  if has_flag(flags, PARKED) then
    redis.call('SREM', parked, id)
    flags = flags - PARKED
  end
  if record and has_flag(flags, UNIQUE) then free_keys({id, record}) end
  row = set(row, FLAGS, char(flags) .. 'd', STARTED, NEVER, ENDED, be6(now))
  problem = 'malformed: ' .. problem
  redis.call('HSET', rows, id, row)
  redis.call('HSET', errors, id, problem)
  redis.call('ZADD', dead_letters, now, id)
  count_settled(row, 'dead', 1)
  local at = #malformed
  malformed[at + 1], malformed[at + 2], malformed[at + 3] = id, row, problem
end

-- Hard ends are a millisecond apart, to return messages in that order. A row is returned once for those that follow each
-- other with the same.
local last_row

local function hand_out(id, row, record)
  count = count + 1
  new_rows[2 * count - 1], new_rows[2 * count] = id, row
  flight[2 * count + 1], flight[2 * count + 2] = hard_end + count - 1, id
  reserved[3 * count - 2], reserved[3 * count - 1], reserved[3 * count] = id, row == last_row and '' or row, record
  last_row = row
end

-- Back into the schedule, unchanged, for a newer version.
local function set_newer_aside(ids)
  local head = redis.call('ZRANGE', schedule, 0, 0, 'WITHSCORES')[2]
  local entries = {}
  for i = 1, #ids do
    entries[2 * i - 1], entries[2 * i] = due_score(now + ASIDE_MS), ids[i]
  end
  redis.call('ZADD', schedule, unpack(entries))
  newer_ones = newer_ones + #ids
  if not head or (now + ASIDE_MS) * 1000 < tonumber(head) then wake(schedule_marker) end
end

-- Rows of messages with small records that are reserved for the first time, by what their records say before the payload,
-- but for version and keys; and what all have in common, from ATTEMPTS to ENDED.
local first_rows, since = {}, ARGV[3] .. be6(now)
local first_attempt = '\0\1\0\0' .. since .. NEVER .. NEVER

local function first_row(record, ends, handler_begins)
  local small = #record <= 1024
  local name = small and sub(record, handler_begins, ends - 1) or row_name(record, handler_begins, ends)
  local head = sub(record, RECORD_FLAGS, RECORD_UNIQUE_KEY - 1) .. name
  if small and first_rows[head] then return first_rows[head] end
  local scheduled = sub(record, RECORD_SCHEDULED, RECORD_UNIQUE_KEY - 1)
  local row = char(row_flags(record)) .. '\0' .. sub(record, RECORD_PRIORITY, RECORD_PRIORITY + 1)
    .. first_attempt .. scheduled .. NEVER .. scheduled .. NEVER .. NEVER .. name
  if small then first_rows[head] = row end
  return row
end

-- The same of records without keys, by their whole head. Mostly it is that of the one before.
local rows_by_head, latest, latest_ends = {}, nil, 0

local function head_of(record)
  if not record or #record > 1024 then return nil end
  if latest and sub(record, 1, latest_ends) == latest then return latest end
  if byte(record, RECORD_UNIQUE_KEY) ~= 0 then return nil end
  latest_ends = find(record, '\n', RECORD_UNIQUE_KEY + 1, true) or 0
  latest = latest_ends > 0 and sub(record, 1, latest_ends)
  return latest
end

-- The same for rows that exist, as of messages that had a due time or an earlier attempt: what they have until ENDED, by
-- what they had until GENERATION.
local later_rows = {}

local function later_row(row)
  local head = sub(row, FLAGS, GENERATION)
  if not later_rows[head] then
    later_rows[head] = sub(row, FLAGS, PRIORITY + 1) .. attempts_bytes(math.min(attempts_of(row) + 1, 65535))
      .. sub(row, CRASHES, GENERATION) .. since .. NEVER
  end
  return later_rows[head] .. sub(row, ENDED)
end

-- By concurrency key, the places taken, read for all messages of a batch at once; the keys of which any is taken.
local taken, taking = {}, {}

-- From the first message with a key on. Returns limits and keys by position; those of a corrupt record are not used.
local function count_places(found_records, first)
  local limits_of, keys_of, keys = {}, {}, {}
  for i = first, #found_records do
    local most, key = concurrency(found_records[i])
    limits_of[i], keys_of[i] = most, key
    if key and not taken[key] then keys[#keys + 1], taken[key] = key, 0 end
  end
  if #keys > 0 then
    local counts = redis.call('HMGET', places_taken, unpack(keys))
    for i = 1, #keys do taken[keys[i]] = tonumber(counts[i] or 0) or 0 end
  end
  return limits_of, keys_of
end

local function open_rates()
-- PART rates
  return waits_for_rate, charged, keep_ledgers
end

local waits_for_rate, charged, keep_ledgers = nil, nil, nil  -- once a message has a rate
local given_up = {}  -- concurrency keys with a place that was offered to a message which must wait for its rate

-- Returns whether any of `ids` could not be reserved: another may take its place.
local function reserve_popped(ids)
  local duplicates, passed_over = 0, false
  local waiting_rows, entries, number, newer_ids = {}, {}, nil, {}
  local limits_of, keys_of = nil, nil  -- by position, see count_places
  local found_rows = redis.call('HMGET', rows, unpack(ids))
  local found_records = redis.call('HMGET', records, unpack(ids))
  for i = 1, #ids do
    local id, row, record, ends, handler_begins = ids[i], nil, nil, nil, nil
    local head = not found_rows[i] and head_of(found_records[i])
    local known = head and not seen[id] and rows_by_head[head]
    if not known then
      row = well_formed(found_rows[i])
      record, ends, handler_begins = readable(found_records[i])
    end
    if known then
      -- Hot path: never reserved before, and like one that was reserved in this step.
      hand_out(id, known, found_records[i])
    elseif ends and not found_rows[i] and byte(record, RECORD_FLAGS) < PARKED and not seen[id] then
      row = first_row(record, ends, handler_begins)
      head = head and handler_begins == RECORD_UNIQUE_KEY + 1 and head  -- it has no concurrency key
      if head then rows_by_head[head] = row end
      hand_out(id, row, record)
    elseif ends and row and byte(row, FLAGS) < PARKED and byte(record, RECORD_FLAGS) < PARKED and not seen[id]
      and state_of(row) == 'ready' then
      hand_out(id, later_row(row), record)  -- the same after a due time, or an attempt
    elseif seen[id] or row and (state_of(row) ~= 'ready' or has_flag(byte(row, FLAGS), WAITING)) then
      duplicates, passed_over = duplicates + 1, true
    elseif newer(found_records[i]) then
      if row and in_line(row) then duplicates = duplicates + 1 end
      newer_ids[#newer_ids + 1] = id
      passed_over = true
    elseif found_rows[i] and not row then
      make_dead(id, nil, record, 'its row cannot be read')
      passed_over = true
    elseif not record then
      if not found_rows[i] and not found_records[i] and tonumber(redis.call('HGET', counters, DUPLICATES) or 0) > duplicates then
        duplicates = duplicates + 1
      else
        if row and in_line(row) then duplicates = duplicates + 1 end
        make_dead(id, row, nil, found_records[i] and 'its record cannot be read' or 'its record is missing')
      end
      passed_over = true
    else
      local has_place = true
      if row and has_flag(byte(row, FLAGS), PARKED) then
        redis.call('SREM', parked, id)
        row = set(row, FLAGS, char(byte(row, FLAGS) - PARKED))
      end
      local key
      if has_flag(byte(record, RECORD_FLAGS), CONCURRENCY) then
        if not keys_of then limits_of, keys_of = count_places(found_records, i) end
        key = keys_of[i]
      end
      local was_in_line = key and row and in_line(row)
      if was_in_line then duplicates = duplicates + 1 end
      local rated, rate_allows = has_flag(byte(record, RECORD_FLAGS), RATE), true
      if rated then
        if not charged then waits_for_rate, charged, keep_ledgers = open_rates() end
        rate_allows = not waits_for_rate(id, row or fresh_row(record), record)
      end
      if not rate_allows then
        has_place = false
        if was_in_line then
          redis.call('ZREM', waiting_for_place, line_entry(id, row, key))
          given_up[#given_up + 1] = key
        end
      elseif key then
        has_place = taken[key] < limits_of[i]
        if not has_place then
          number = (number or FIRST_NUMBER + redis.call('HINCRBY', counters, 'stood in line', #ids) - #ids) + 1
          waiting_rows[#waiting_rows + 1] = id
          entries[#entries + 1] = 0
          waiting_rows[#waiting_rows + 1], entries[#entries + 1] = waiting_row(id, row or fresh_row(record), key, number)
        else
          taken[key], taking[key] = taken[key] + 1, true
          if was_in_line then redis.call('ZREM', waiting_for_place, line_entry(id, row, key)) end
        end
      end
      if not has_place then
        passed_over = true
      else
        if rated then row = charged(row or fresh_row(record), record) end
        hand_out(id, row and later_row(row) or first_row(record, ends, handler_begins), record)
      end
    end
    seen[id] = true
  end
  if #waiting_rows > 0 then
    redis.call('HSET', rows, unpack(waiting_rows))
    redis.call('ZADD', waiting_for_place, unpack(entries))
  end
  if #newer_ids > 0 then set_newer_aside(newer_ids) end
  -- A repeated id that another program pushed was never counted.
  local counted = duplicates > 0 and tonumber(redis.call('HGET', counters, DUPLICATES) or 0) or 0
  if counted > 0 then redis.call('HINCRBY', counters, DUPLICATES, -math.min(duplicates, counted)) end
  return passed_over
end

local more, looked = wanted > 0 and standing > 0 and redis.call('EXISTS', paused) == 0, 0
while more and looked < MOST_LOOKED_AT do
  local ids = pop(wanted - count)
  looked = looked + #ids
  more = #ids > 0 and reserve_popped(ids)
end
if count > 0 then
  redis.call('HSET', rows, unpack(new_rows))
  redis.call('ZADD', in_flight, unpack(flight, count > FEW and 1 or 3))
  if count > FEW then redis.call('ZREM', in_flight, LONG) end
  local places = {}
  for key in pairs(taking) do places[#places + 1], places[#places + 2] = key, taken[key] end
  if #places > 0 then redis.call('HSET', places_taken, unpack(places)) end
  if sixtieth then redis.call('HINCRBY', handed_out, decimal(floor(now / sixtieth)), count) end
end
if keep_ledgers then keep_ledgers() end
standing = standing - looked
for i = 1, #given_up do standing = standing + offer_places(given_up[i]) end
-- Without ids there are no duplicates: another count is corrupt.
local duplicates = count == 0 and tonumber(redis.call('HGET', counters, DUPLICATES) or 0) or 0
if duplicates ~= 0 and standing == 0 then
  redis.call('HDEL', counters, DUPLICATES)
  duplicates = 0
end
awake = count > 0 or more
more_in = left - count <= 0 and left_in or more and count == 0 and 0 or -1
-- None could be reserved: is nothing ready, or does a limit, a pause or a concurrency key hold messages back?
if count == 0 and standing + redis.call('ZCARD', waiting_for_place) > duplicates then held_back = 1 end
