-- The second part of a step: reserve.

-- Bounds the time spent on ids that cannot be reserved.
local MOST_LOOKED_AT = 100
local ASIDE_MS = 60000

local reserved, new_rows, flight = {}, {}, {}
local malformed = {}  -- new dead letters: id, row, problem
local newer_ones = 0
local seen, taken = {}, {}  -- ids popped; by concurrency key, places taken
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
  if record and has_flag(flags, UNIQUE) then free_key(id, record) end
  row = set(row, FLAGS, char(flags) .. 'd', STARTED, NEVER, ENDED, be6(now))
  problem = 'malformed: ' .. problem
  redis.call('HSET', rows, id, row)
  redis.call('HSET', errors, id, problem)
  redis.call('ZADD', dead_letters, now, id)
  local at = #malformed
  malformed[at + 1], malformed[at + 2], malformed[at + 3] = id, row, problem
end

-- Hard ends are a millisecond apart, to return messages in that order. (Fractions made a step of 128 1.5 times as slow: a
-- small sorted set parses them at each comparison.)
local function hand_out(id, row, record)
  local at = #new_rows
  new_rows[at + 1], new_rows[at + 2] = id, row
  flight[at + 1], flight[at + 2] = hard_end + at / 2, id
  at = #reserved
  reserved[at + 1], reserved[at + 2], reserved[at + 3] = id, row, record
end

-- Back into the schedule, unchanged, for a newer version.
local function set_newer_aside(ids)
  local head = redis.call('ZRANGE', schedule, 0, 0, 'WITHSCORES')[2]
  local entries = {}
  for i = 1, #ids do
    entries[2 * i - 1], entries[2 * i] = decimal(now + ASIDE_MS), ids[i]
  end
  redis.call('ZADD', schedule, unpack(entries))
  newer_ones = newer_ones + #ids
  if not head or now + ASIDE_MS < tonumber(head) then wake(schedule_marker) end
end

-- Returns whether any of `ids` could not be reserved: another may take its place.
local function reserve_popped(ids)
  local fence, stamp, duplicates, passed_over = ARGV[3], be6(now), 0, false
  local waiting_rows, entries, number, newer_ids = {}, {}, nil, {}
  local found_rows = redis.call('HMGET', rows, unpack(ids))
  local found_records = redis.call('HMGET', records, unpack(ids))
  for i = 1, #ids do
    local id, row, record = ids[i], well_formed(found_rows[i]), readable(found_records[i])
    if seen[id] or row and (state_of(row) ~= 'ready' or has_flag(byte(row, FLAGS), WAITING)) then
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
    elseif not row and byte(record, RECORD_FLAGS) < PARKED then
      -- Hot path: never reserved before, no keys. Makes in one concatenation what takes two below.
      local at, scheduled = RECORD_UNIQUE_KEY + 1 + byte(record, RECORD_UNIQUE_KEY), sub(record, RECORD_SCHEDULED, RECORD_UNIQUE_KEY - 1)
      hand_out(id, char(byte(record, RECORD_FLAGS) + (#record > 1024 and LARGE or 0)) .. '\0' .. sub(record, RECORD_PRIORITY, RECORD_PRIORITY + 1)
        .. '\0\1\0\0' .. fence .. stamp .. NEVER .. NEVER .. scheduled .. NEVER .. scheduled .. NEVER .. NEVER
        .. sub(record, at, find(record, '\n', at, true) - 1), record)
    else
      row = row or fresh_row(record)
      local flags, attempts, has_place = byte(row, FLAGS), math.min(attempts_of(row) + 1, 65535), true
      if flags > 0 then
        if has_flag(flags, PARKED) then
          redis.call('SREM', parked, id)
          flags = flags - PARKED
          row = set(row, FLAGS, char(flags))
        end
        local most, key = concurrency(has_flag(flags, CONCURRENCY) and record)
        if key then
          taken[key] = taken[key] or tonumber(redis.call('HGET', places_taken, key) or 0)
          has_place = taken[key] < most
          if in_line(row) then duplicates = duplicates + 1 end
          if has_place then
            taken[key] = redis.call('HINCRBY', places_taken, key, 1)
            if in_line(row) then redis.call('ZREM', waiting_for_place, line_entry(id, row, key)) end
          else
            number = (number or FIRST_NUMBER + redis.call('HINCRBY', counters, 'stood in line', #ids) - #ids) + 1
            waiting_rows[#waiting_rows + 1] = id
            entries[#entries + 1] = 0
            waiting_rows[#waiting_rows + 1], entries[#entries + 1] = waiting_row(id, row, key, number)
          end
        end
      end
      if has_place then
        hand_out(id, sub(row, FLAGS, PRIORITY + 1) .. attempts_bytes(attempts) .. sub(row, CRASHES, GENERATION)
          .. fence .. stamp .. NEVER .. sub(row, ENDED), record)
      else
        passed_over = true
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

-- The rest of a quota, and ms until there is more once it is used up. A period is counted in sixtieths, each of which counts
-- until all of it is past: no span of that length exceeds the quota.
local function left_of_quota(quota, period, sixtieth)
  local spent, used, oldest = redis.call('HGETALL', handed_out), 0, (floor(now / sixtieth) + 1) * sixtieth
  for i = 1, #spent, 2 do
    local ends = (tonumber(spent[i]) + 1) * sixtieth
    if ends <= now - period or ends > now + period then
      redis.call('HDEL', handed_out, spent[i])
    else
      used = used + tonumber(spent[i + 1])
      oldest = math.min(oldest, ends)
    end
  end
  return quota - used, math.max(1, math.ceil(oldest + period - now))
end

-- The queue's limits are '', or three optional numbers: most in flight, most handed out in a period, its ms.
local wanted, limits = tonumber(ARGV[5]), ARGV[6]
local room, sixtieth, left, left_in = math.huge, nil, math.huge, nil
if limits ~= '' then
  local most, quota, period = string.match(limits, '^(%d*) (%d*) (%d*)$')
  if most ~= '' then room = tonumber(most) - redis.call('ZCARD', in_flight) end
  if quota ~= '' then
    sixtieth = math.max(1, tonumber(period) / 60)
    left, left_in = left_of_quota(tonumber(quota), tonumber(period), sixtieth)
    room = math.min(room, left)
  end
  wanted = math.max(0, math.min(wanted, room))
end
if pushed > 0 then ranked = redis.call('ZCARD', ready_by_priority) end
local more, looked = wanted > 0 and redis.call('EXISTS', paused) == 0, 0
while more and looked < MOST_LOOKED_AT do
  local ids = pop(wanted - #reserved / 3)
  looked = looked + #ids
  more = #ids > 0 and reserve_popped(ids)
  -- Without ids there are no duplicates: another count is corrupt.
  if #ids == 0 and (redis.call('HGET', counters, DUPLICATES) or '0') ~= '0' then
    redis.call('HDEL', counters, DUPLICATES)
  end
end
if #new_rows > 0 then
  redis.call('HSET', rows, unpack(new_rows))
  redis.call('ZADD', in_flight, unpack(flight))
end
local count = #reserved / 3
if sixtieth and count > 0 then redis.call('HINCRBY', handed_out, decimal(floor(now / sixtieth)), count) end
local more_in = left - count <= 0 and left_in or more and count == 0 and 0 or -1
