-- Settle what a launch has handled and reserve what it handles next, in one round trip.
-- KEYS b m r z s f d x e u c t k ks p q g w h o v vx y sw
-- ARGV lineage, fence, fence in 6 bytes, ms that a reservation lasts at most, messages to reserve, the queue's limits ('',
--   or three numbers, each may be missing: most in flight, most handed out in a period, its ms), messages completed;
--   for each completed: id, row as reserved, row to be;
--   for each settled otherwise: id, row as reserved, row to be, kind, ms, text, messages to be sent
--     (kinds: retry and park, with their delay and error; dead, with its error; release, to the head, before what was
--     released before it; complete, with the result and how long it is kept, and what is to be sent with the completion;
--     begin: it stays reserved, and is handled now for the only time)
-- Returns now, ids whose reservation was no longer the caller's (nothing was changed for them), 1 to the one caller
--   that makes way for a successor, for each message reserved: id, row, record; and ms until the limits let more be
--   handed out: -1 where they do or only an end of what is in flight can tell, 0 where it is enough to ask again; 1 where
--   none was reserved that was to be, though messages are ready; and how many messages of a newer version were set aside:
--   into the schedule, for a minute, with record and row as they were; for each that turned out malformed and is a dead
--   letter now: id, row, problem
-- Refusals: FENCED when a newer launch has announced itself, FORGOTTEN when the store was emptied

local refusal = not_ours(ARGV[1], ARGV[2])
if refusal then
  wake(k)
  return refusal
end
local now = now_ms()
local wanted, limits, completed = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])
redis.call('LLEN', r)
local ranked = redis.call('ZCARD', z)
redis.call('HLEN', b)
redis.call('ZCARD', f)
redis.call('LLEN', d)
redis.call('LLEN', k)

local stale = {}
local new_rows, gone, ended, dropped = {}, {}, {}, {}

local settled, freed, released = completed > 0, {}, {}
-- What is popped and turns out not to be ready, or to find its key's places taken, must not hold up the server.
local MOST_LOOKED_AT = 100
local ASIDE_FOR, newer_ones = 60000, 0

-- Give up what a message holds beside its reservation: its unique key where it has ended, its place among those with the
-- same concurrency key. Places are offered when all are known that are free: in the order of the line, whoever left first.
local function let_go(id, flags, has_ended)
  local unique, concurrent = has_ended and has_flag(flags, UNIQUE), has_flag(flags, CONCURRENCY)
  local record = (unique or concurrent) and readable(redis.call('HGET', b, id))
  if not record then return end
  if unique then free_key(id, record) end
  if concurrent then
    local _, key = concurrency(record)
    if key then
      leave_place(key)
      freed[#freed + 1] = key
    end
  end
end

local last = 7 + 3 * completed
if completed > 0 then
  local ids = {}
  for i = 8, last, 3 do ids[#ids + 1] = ARGV[i] end
  local rows = redis.call('HMGET', m, unpack(ids))
  for i = 1, completed do
    local at = 5 + 3 * i
    local row, id = ARGV[at + 2], ids[i]
    if rows[i] == ARGV[at + 1] then
      new_rows[#new_rows + 1] = id
      new_rows[#new_rows + 1] = row
      gone[#gone + 1] = id
      ended[#ended + 1] = sub(row, 27, 32) .. id
      local flags = byte(row, 1)
      if flags > 0 then
        let_go(id, flags, true)
        if has_flag(flags, LARGE) then dropped[#dropped + 1] = id end
        if has_flag(flags, CHECKPOINT) then redis.call('HDEL', y, id) end
      end
    elseif rows[i] ~= row then
      stale[#stale + 1] = id
    end
  end
  if #gone > 0 then
    redis.call('ZREM', f, unpack(gone))
    redis.call('HSET', m, unpack(new_rows))
    redis.call('RPUSH', d, unpack(ended))
    if #dropped > 0 then redis.call('HDEL', b, unpack(dropped)) end
  end
end

for at = last + 1, #ARGV, 7 do
  local id, row, kind, delay, text = ARGV[at], ARGV[at + 2], ARGV[at + 3], tonumber(ARGV[at + 4]), ARGV[at + 5]
  local held = redis.call('HGET', m, id)
  if held == ARGV[at + 1] and kind == 'begin' then
    redis.call('HSET', m, id, row)
  elseif held == ARGV[at + 1] then
    local flags = byte(row, 1)
    settled = true
    redis.call('ZREM', f, id)
    if kind ~= 'complete' and text ~= '' then redis.call('HSET', e, id, text) end
    if flags > 0 and kind ~= 'release' then let_go(id, flags, kind == 'dead' or kind == 'complete') end
    if kind == 'complete' then
      redis.call('HSET', m, id, row)
      redis.call('RPUSH', d, sub(row, 27, 32) .. id)
      if has_flag(flags, LARGE) then redis.call('HDEL', b, id) end
      if has_flag(flags, CHECKPOINT) then redis.call('HDEL', y, id) end
      if text ~= '' then
        redis.call('HSET', v, id, text)
        redis.call('ZADD', vx, now + delay, id)
      end
      if ARGV[at + 6] ~= '' then
        -- Numbers rise, also where the last ones were lost with a failing server.
        local number = math.max(tonumber(redis.call('HGET', c, 'sent on') or 0) + 1, now * 1000)
        redis.call('HSET', c, 'sent on', string.format('%.0f', number))
        redis.call('RPUSH', o, string.format('%.0f\n', number) .. ARGV[at + 6])
      end
    elseif kind == 'dead' then
      redis.call('HSET', m, id, row)
      redis.call('ZADD', x, number6(row, 27), id)
    elseif kind == 'release' then
      released[#released + 1] = id
      released[#released + 1] = row
    else
      local due = now + delay
      local head = redis.call('ZRANGE', s, 0, 0, 'WITHSCORES')[2]
      redis.call('HSET', m, id, sub(row, 1, 56) .. be6(due) .. sub(row, 63))
      redis.call('ZADD', s, string.format('%.0f', due), id)
      if kind == 'park' then redis.call('SADD', p, id) end
      if not head or due < tonumber(head) then wake(ks) end
    end
  elseif not held or sub(held, 1, 56) ~= sub(row, 1, 56) then
    stale[#stale + 1] = id
  end
end

for i = #freed, 1, -1 do offer_places(freed[i]) end
for i = 1, #released, 2 do come_back(released[i], released[i + 1]) end
if back > 0 then ranked = redis.call('ZCARD', z) end

-- The tick at which a message of priority 0 became ready; of what is left over, 0.
local function tick_of(id)
  local row = redis.call('HGET', m, id)
  if row then return well_formed(row) and state_of(row) == 'ready' and number6(row, 45) * TICKS or 0 end
  local record = readable(redis.call('HGET', b, id))
  return record and number6(record, 5) * TICKS or 0
end

-- Messages of priority 0 stand in a list, all others in a set by score: both are merged here, where there are others.
local function pop(count)
  if ranked == 0 then return redis.call('LPOP', r, count) or {} end
  local ids = {}
  while #ids < count do
    local wanted_still, popped = count - #ids, nil
    local score = tonumber(redis.call('ZRANGE', z, 0, 0, 'WITHSCORES')[2])
    local first = redis.call('LINDEX', r, 0)
    local tick = first and tick_of(first)
    if first and (not score or tick <= score) then
      local run = math.min(wanted_still, redis.call('LLEN', r))
      local last_tick = score and tick_of(redis.call('LINDEX', r, run - 1))
      local whole = not score or last_tick > 0 and last_tick <= score
      popped = redis.call('LPOP', r, whole and run or 1)
    elseif score then
      local below = first and '(' .. string.format('%.0f', tick) or '+inf'
      popped = redis.call('ZRANGEBYSCORE', z, '-inf', below, 'LIMIT', 0, wanted_still)
      redis.call('ZREM', z, unpack(popped))
    else
      break
    end
    for i = 1, #popped do ids[#ids + 1] = popped[i] end
  end
  return ids
end

local buried = {}

local function bury(id, row, record, problem)
  row = row or record and fresh_row(record) or '\0\0\128\0\0\0\0\0' .. string.rep(NEVER, 9)
  local flags = byte(row, 1)
  if has_flag(flags, PARKED) then
    redis.call('SREM', p, id)
    flags = flags - PARKED
  end
  if record and has_flag(flags, UNIQUE) then free_key(id, record) end
  row, problem = char(flags) .. 'd' .. sub(row, 3, 20) .. NEVER .. be6(now) .. sub(row, 33), 'malformed: ' .. problem
  redis.call('HSET', m, id, row)
  redis.call('HSET', e, id, problem)
  local at = #buried
  buried[at + 1], buried[at + 2], buried[at + 3] = id, row, problem
  redis.call('ZADD', x, now, id)
  return true
end

local reserved, flight, seen, taken = {}, {}, {}, {}
local hard_end = now + tonumber(ARGV[4])
new_rows = {}

-- Each has its hard end a millisecond after the one before it: what comes back goes back in that order. (Fractions made a
-- step of 128 half as slow again: a small sorted set reads them from text whenever it compares.)
local function hand_out(id, row, record)
  local at = #new_rows
  new_rows[at + 1], new_rows[at + 2] = id, row
  flight[at + 1], flight[at + 2] = hard_end + at / 2, id
  at = #reserved
  reserved[at + 1], reserved[at + 2], reserved[at + 3] = id, row, record
end

-- Returns whether any of `ids` could not be reserved: others may be, in its place.
local function reserve(ids)
  local fence, stamp, left_over, passed_over = ARGV[3], be6(now), 0, false
  local aside, line, number, later = {}, {}, nil, {}
  local rows = redis.call('HMGET', m, unpack(ids))
  local records = redis.call('HMGET', b, unpack(ids))
  for i = 1, #ids do
    local id, row, record = ids[i], well_formed(rows[i]), readable(records[i])
    if seen[id] or row and (state_of(row) ~= 'ready' or has_flag(byte(row, 1), WAITING)) then
      left_over, passed_over = left_over + 1, true
    elseif newer(records[i]) then
      if row and in_line(row) then left_over = left_over + 1 end
      later[#later + 1] = string.format('%.0f', now + ASIDE_FOR)
      later[#later + 1] = id
      passed_over = true
    elseif rows[i] and not row then
      passed_over = bury(id, nil, record, 'its row cannot be read')
    elseif not record then
      if not rows[i] and not records[i] and tonumber(redis.call('HGET', c, 'left over') or 0) > left_over then
        left_over, passed_over = left_over + 1, true
      else
        if row and in_line(row) then left_over = left_over + 1 end
        passed_over = bury(id, row, nil, records[i] and 'its record cannot be read' or 'its record is missing')
      end
    elseif not row and byte(record, 2) < PARKED then
      -- As most are: never reserved before, and nothing to look after. In one piece, what is made in two below.
      local at, scheduled = 12 + byte(record, 11), sub(record, 5, 10)
      hand_out(id, char(byte(record, 2) + (#record > 1024 and LARGE or 0)) .. '\0' .. sub(record, 3, 4) .. '\0\1\0\0'
        .. fence .. stamp .. NEVER .. NEVER .. scheduled .. NEVER .. scheduled .. NEVER .. NEVER
        .. sub(record, at, find(record, '\n', at, true) - 1), record)
    else
      row = row or fresh_row(record)
      local flags, high, low = byte(row, 1), byte(row, 5, 6)
      local attempts, has_place = math.min(high * 256 + low + 1, 65535), true
      if flags > 0 then
        if has_flag(flags, PARKED) then
          redis.call('SREM', p, id)
          flags = flags - PARKED
          row = char(flags) .. sub(row, 2)
        end
        local most, key = concurrency(has_flag(flags, CONCURRENCY) and record)
        if key then
          taken[key] = taken[key] or tonumber(redis.call('HGET', g, key) or 0)
          has_place = taken[key] < most
          if in_line(row) then left_over = left_over + 1 end
          if has_place then
            taken[key] = redis.call('HINCRBY', g, key, 1)
            if in_line(row) then leave_line(id, row, key) end
          else
            number = (number or FIRST_NUMBER + redis.call('HINCRBY', c, 'stood in line', #ids) - #ids) + 1
            aside[#aside + 1] = id
            line[#line + 1] = 0
            aside[#aside + 1], line[#line + 1] = standing(id, row, key, number)
          end
        end
      end
      if has_place then
        hand_out(id, char(flags) .. sub(row, 2, 4) .. char(floor(attempts / 256), attempts % 256) .. sub(row, 7, 8)
          .. fence .. stamp .. NEVER .. sub(row, 27), record)
      else
        passed_over = true
      end
    end
    seen[id] = true
  end
  if #aside > 0 then
    redis.call('HSET', m, unpack(aside))
    redis.call('ZADD', w, unpack(line))
  end
  if #later > 0 then
    local head = redis.call('ZRANGE', s, 0, 0, 'WITHSCORES')[2]
    redis.call('ZADD', s, unpack(later))
    newer_ones = newer_ones + #later / 2
    if not head or now + ASIDE_FOR < tonumber(head) then wake(ks) end
  end
  -- An id that somebody pushed a second time was never counted.
  local counted = left_over > 0 and tonumber(redis.call('HGET', c, 'left over') or 0) or 0
  if counted > 0 then redis.call('HINCRBY', c, 'left over', -math.min(left_over, counted)) end
  return passed_over
end

-- What is left of a quota, and ms until there is more of it once that is used up. A period is counted in sixtieths, each
-- of which counts until all of it is past: no span of that length ever sees more than the quota.
local function left_of_quota(quota, period, slice)
  local spent, used, oldest = redis.call('HGETALL', h), 0, (floor(now / slice) + 1) * slice
  for i = 1, #spent, 2 do
    local ends = (tonumber(spent[i]) + 1) * slice
    if ends <= now - period or ends > now + period then
      redis.call('HDEL', h, spent[i])
    else
      used = used + tonumber(spent[i + 1])
      oldest = math.min(oldest, ends)
    end
  end
  return quota - used, math.max(1, math.ceil(oldest + period - now))
end

local room, slice, left, left_in = math.huge, nil, math.huge, nil
if limits ~= '' then
  local most, quota, period = string.match(limits, '^(%d*) (%d*) (%d*)$')
  if most ~= '' then room = tonumber(most) - redis.call('ZCARD', f) end
  if quota ~= '' then
    slice = math.max(1, tonumber(period) / 60)
    left, left_in = left_of_quota(tonumber(quota), tonumber(period), slice)
    room = math.min(room, left)
  end
  wanted = math.max(0, math.min(wanted, room))
end
local more, looked = wanted > 0 and redis.call('EXISTS', q) == 0, 0
while more and looked < MOST_LOOKED_AT do
  local ids = pop(wanted - #reserved / 3)
  looked = looked + #ids
  more = #ids > 0 and reserve(ids)
  -- Nothing is left where nothing is: a count that says otherwise began with somebody else's write.
  if #ids == 0 and (redis.call('HGET', c, 'left over') or '0') ~= '0' then redis.call('HDEL', c, 'left over') end
end
if #new_rows > 0 then
  redis.call('HSET', m, unpack(new_rows))
  redis.call('ZADD', f, unpack(flight))
end
local count = #reserved / 3
if slice and count > 0 then redis.call('HINCRBY', h, string.format('%.0f', floor(now / slice)), count) end
local more_in = left - count <= 0 and left_in or more and count == 0 and 0 or -1
if (back > 0 or count > 0 or more or settled and limits ~= '') and room > count
  and (redis.call('LLEN', r) > 0 or redis.call('ZCARD', z) > 0) then
  wake(k)
end
-- Nothing was reserved that was to be: is there nothing, or does a limit, a pause or a concurrency key hold it back?
local left_in_line = 0
if count == 0 and tonumber(ARGV[5]) > 0 then
  local ready = redis.call('LLEN', r) + redis.call('ZCARD', z) + redis.call('ZCARD', w)
  if ready > tonumber(redis.call('HGET', c, 'left over') or 0) then left_in_line = 1 end
end
return {now, stale, redis.call('DEL', sw), reserved, more_in, left_in_line, newer_ones, buried}
