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
--   handed out: -1 where they do or only an end of what is in flight can tell, 0 where it is enough to ask again
-- Refusals: FENCED when a newer launch has announced itself

if redis.call('HGET', t, ARGV[1]) ~= ARGV[2] then
  wake(k)
  return redis.error_reply('FENCED ' .. ARGV[1])
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

local back, settled = 0, completed > 0
-- What is popped and turns out not to be ready, or to find its key's places taken, must not hold up the server.
local MOST_LOOKED_AT = 1000

-- Give up what a message holds beside its reservation: its unique key where it has ended, its place among those with the
-- same concurrency key.
local function let_go(id, flags, has_ended)
  local unique, concurrent = has_ended and has_flag(flags, UNIQUE), has_flag(flags, CONCURRENCY)
  local record = (unique or concurrent) and readable(redis.call('HGET', b, id))
  if not record then return end
  if unique then free_key(id, record, u) end
  if concurrent then
    local _, key = concurrency(record)
    if leave_place(key, back, m, r, z, g, w) then ranked, back = redis.call('ZCARD', z), back + 1 end
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
    if flags > 0 then let_go(id, flags, kind == 'dead' or kind == 'complete') end
    if kind == 'complete' then
      redis.call('HSET', m, id, row)
      redis.call('RPUSH', d, sub(row, 27, 32) .. id)
      if has_flag(flags, LARGE) then redis.call('HDEL', b, id) end
      if has_flag(flags, CHECKPOINT) then redis.call('HDEL', y, id) end
      if text ~= '' then
        redis.call('HSET', v, id, text)
        redis.call('ZADD', vx, now + delay, id)
      end
      if ARGV[at + 6] ~= '' then redis.call('RPUSH', o, ARGV[at + 6]) end
    elseif kind == 'dead' then
      redis.call('HSET', m, id, row)
      redis.call('ZADD', x, number6(row, 27), id)
    elseif kind == 'release' then
      redis.call('HSET', m, id, row)
      put_back(id, row, back, r, z)
      ranked, back = redis.call('ZCARD', z), back + 1
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

-- The tick at which a message of priority 0 became ready.
local function tick_of(id)
  local row = redis.call('HGET', m, id)
  if row then return well_formed(row) and number6(row, 45) * TICKS or 0 end
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
      local whole = not score or tick_of(redis.call('LINDEX', r, run - 1)) <= score
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

local function bury(id, row, problem)
  row = row or '\0\0\128\0\0\0\0\0' .. string.rep(NEVER, 9)
  redis.call('HSET', m, id, sub(row, 1, 1) .. 'd' .. sub(row, 3, 26) .. be6(now) .. sub(row, 33))
  redis.call('HSET', e, id, 'malformed: ' .. problem)
  redis.call('ZADD', x, now, id)
end

local reserved, flight, seen = {}, {}, {}
new_rows = {}

-- Returns whether any of `ids` could not be reserved: others may be, in its place.
local function reserve(ids)
  local fence, stamp, left_over, set_aside = ARGV[3], be6(now), 0, 0
  local hard_end = string.format('%.0f', now + tonumber(ARGV[4]))
  local rows = redis.call('HMGET', m, unpack(ids))
  local records = redis.call('HMGET', b, unpack(ids))
  for i = 1, #ids do
    local id, row, record = ids[i], well_formed(rows[i]), readable(records[i])
    if seen[id] or (row and state_of(row) ~= 'ready') then
      left_over = left_over + 1
    elseif rows[i] and not row then
      bury(id, nil, 'its row cannot be read')
    elseif not record then
      if not rows[i] and not records[i] and tonumber(redis.call('HGET', c, 'left over') or 0) > left_over then
        left_over = left_over + 1
      else
        bury(id, row, records[i] and 'its record cannot be read' or 'its record is missing')
      end
    else
      row = row or fresh_row(record)
      local flags, high, low = byte(row, 1), byte(row, 5, 6)
      local attempts, has_place = math.min(high * 256 + low + 1, 65535), true
      if flags > 0 then
        if has_flag(flags, PARKED) then
          redis.call('SREM', p, id)
          flags = flags - PARKED
        end
        if has_flag(flags, CONCURRENCY) and has_flag(byte(record, 2), CONCURRENCY) then
          local most, key = concurrency(record)
          has_place = tonumber(redis.call('HGET', g, key) or 0) < most
          if has_place then redis.call('HINCRBY', g, key, 1) else wait_for_place(id, row, key, m, c, w) end
        end
      end
      if has_place then
        row = char(flags) .. sub(row, 2, 4) .. char(floor(attempts / 256), attempts % 256) .. sub(row, 7, 8)
          .. fence .. stamp .. NEVER .. sub(row, 27)
        new_rows[#new_rows + 1] = id
        new_rows[#new_rows + 1] = row
        flight[#flight + 1] = hard_end
        flight[#flight + 1] = id
        seen[id] = true
        reserved[#reserved + 1] = id
        reserved[#reserved + 1] = row
        reserved[#reserved + 1] = record
      else
        set_aside = set_aside + 1
      end
    end
  end
  if left_over > 0 then redis.call('HINCRBY', c, 'left over', -left_over) end
  return left_over + set_aside > 0
end

-- What is left of a quota, and ms until there is more where nothing is. A period is counted in sixtieths, each of which
-- counts until all of it is past: no span of that length ever sees more than the quota.
local function left_of_quota(quota, period, slice)
  local spent, used, oldest = redis.call('HGETALL', h), 0, nil
  for i = 1, #spent, 2 do
    local ends = (tonumber(spent[i]) + 1) * slice
    if ends <= now - period or ends > now + period then
      redis.call('HDEL', h, spent[i])
    else
      used = used + tonumber(spent[i + 1])
      oldest = math.min(oldest or ends, ends)
    end
  end
  local left = quota - used
  return left, left <= 0 and oldest and math.max(1, math.ceil(oldest + period - now)) or -1
end

local room, more_in, slice = math.huge, -1, nil
if limits ~= '' then
  local most, quota, period = string.match(limits, '^(%d*) (%d*) (%d*)$')
  if most ~= '' then room = tonumber(most) - redis.call('ZCARD', f) end
  if quota ~= '' then
    slice = math.max(1, tonumber(period) / 60)
    local left
    left, more_in = left_of_quota(tonumber(quota), tonumber(period), slice)
    room = math.min(room, left)
  end
  wanted = math.max(0, math.min(wanted, room))
end
local more, looked = wanted > 0 and redis.call('EXISTS', q) == 0, 0
while more and looked < MOST_LOOKED_AT do
  local ids = pop(wanted - #reserved / 3)
  looked = looked + #ids
  more = #ids > 0 and reserve(ids)
end
if #new_rows > 0 then
  redis.call('HSET', m, unpack(new_rows))
  redis.call('ZADD', f, unpack(flight))
end
local count = #reserved / 3
if slice and count > 0 then redis.call('HINCRBY', h, string.format('%.0f', floor(now / slice)), count) end
if more and count == 0 then more_in = 0 end
if (back > 0 or count > 0 or more or settled and limits ~= '') and room > count
  and (redis.call('LLEN', r) > 0 or redis.call('ZCARD', z) > 0) then
  wake(k)
end
return {now, stale, redis.call('DEL', sw), reserved, more_in}
