-- Settle what a launch has handled and reserve what it handles next, in one round trip.
-- KEYS b m r z s f d x e u c t k ks p q sw
-- ARGV lineage, fence, fence in 6 bytes, ms that a reservation lasts at most, messages to reserve, messages completed;
--   for each completed: id, row as reserved, row to be;
--   for each settled otherwise: id, row as reserved, row to be, kind, delay in ms, error
--     (kinds: retry and park with their delay, dead; release, to the head, before what was released before it)
-- Returns now, ids whose reservation was no longer the caller's (nothing was changed for them), 1 to the one caller
--   that makes way for a successor, and for each message reserved: id, row, record
-- Refusals: FENCED when a newer launch has announced itself

if redis.call('HGET', t, ARGV[1]) ~= ARGV[2] then
  wake(k)
  return redis.error_reply('FENCED ' .. ARGV[1])
end
local now = now_ms()
local wanted, completed = tonumber(ARGV[5]), tonumber(ARGV[6])
redis.call('LLEN', r)
local ranked = redis.call('ZCARD', z)
redis.call('HLEN', b)
redis.call('ZCARD', f)
redis.call('LLEN', d)
redis.call('LLEN', k)

local stale = {}
local new_rows, gone, ended, dropped = {}, {}, {}, {}

local function free_unique_key(id)
  local record = redis.call('HGET', b, id)
  if record then
    local key = sub(record, 12, 11 + byte(record, 11))
    if redis.call('HGET', u, key) == id then redis.call('HDEL', u, key) end
  end
end

local last = 6 + 3 * completed
if completed > 0 then
  local ids = {}
  for i = 7, last, 3 do ids[#ids + 1] = ARGV[i] end
  local rows = redis.call('HMGET', m, unpack(ids))
  for i = 1, completed do
    local at = 4 + 3 * i
    local row, id = ARGV[at + 2], ids[i]
    if rows[i] == ARGV[at + 1] then
      new_rows[#new_rows + 1] = id
      new_rows[#new_rows + 1] = row
      gone[#gone + 1] = id
      ended[#ended + 1] = sub(row, 27, 32) .. id
      local flags = byte(row, 1)
      if flags > 0 then
        if has_flag(flags, 2) then free_unique_key(id) end
        if has_flag(flags, 1) then dropped[#dropped + 1] = id end
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

local released = false
for at = last + 1, #ARGV, 6 do
  local id, row, kind, delay, problem = ARGV[at], ARGV[at + 2], ARGV[at + 3], tonumber(ARGV[at + 4]), ARGV[at + 5]
  local held = redis.call('HGET', m, id)
  if held == ARGV[at + 1] then
    redis.call('ZREM', f, id)
    if problem ~= '' then redis.call('HSET', e, id, problem) end
    if kind == 'dead' then
      redis.call('HSET', m, id, row)
      redis.call('ZADD', x, number6(row, 27), id)
      if has_flag(byte(row, 1), 2) then free_unique_key(id) end
    elseif kind == 'release' then
      released = true
      redis.call('HSET', m, id, row)
      local priority = priority_of(row)
      if priority == 0 then
        redis.call('LPUSH', r, id)
      else
        ranked = ranked + redis.call('ZADD', z, ready_score(priority, 0), id)
      end
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

local function pop(count)
  local ids = {}
  if ranked > 0 then
    ids = redis.call('ZRANGEBYSCORE', z, '-inf', '(0', 'LIMIT', 0, count)
    if #ids > 0 then redis.call('ZREM', z, unpack(ids)) end
  end
  if #ids < count then
    local popped = redis.call('LPOP', r, count - #ids)
    if popped then
      for i = 1, #popped do ids[#ids + 1] = popped[i] end
    end
  end
  if #ids < count and ranked > 0 then
    local popped = redis.call('ZPOPMIN', z, count - #ids)
    for i = 1, #popped, 2 do ids[#ids + 1] = popped[i] end
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

-- Returns how many of `ids` were no longer ready when they were popped.
local function reserve(ids)
  local fence, stamp, left_over = ARGV[3], be6(now), 0
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
      local attempts = math.min(high * 256 + low + 1, 65535)
      if has_flag(flags, 4) then
        redis.call('SREM', p, id)
        flags = flags - 4
      end
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
    end
  end
  if left_over > 0 then redis.call('HINCRBY', c, 'left over', -left_over) end
  return left_over
end

local taken = wanted > 0 and redis.call('EXISTS', q) == 0
while taken do
  local ids = pop(wanted - #reserved / 3)
  taken = #ids > 0 and reserve(ids) > 0
end
if #new_rows > 0 then
  redis.call('HSET', m, unpack(new_rows))
  redis.call('ZADD', f, unpack(flight))
end
if (released or #reserved > 0) and (redis.call('LLEN', r) > 0 or redis.call('ZCARD', z) > 0) then wake(k) end
return {now, stale, redis.call('DEL', sw), reserved}
