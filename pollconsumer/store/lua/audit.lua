-- Look for messages that stand nowhere, and put them where their row says: a script that was cut short in between, by an
-- access rule, has written a record and nothing more.
-- KEYS b m r z s f d dx x w c k ks g p
-- ARGV most records to look at, more or less
-- Returns messages put in place; 1 while there are more records than places, so that others are missing; and 1 when all
--   records have been looked at
-- Goes on where the call before ended. What cannot be told at little cost, whether an id is somewhere in a long list, is
-- left for a time when the list is shorter, or all before the message has been handled.
-- A few of those that wait for a concurrency key, or are parked, are looked at, too: what is no such message is taken out,
-- or it would be counted for ever.

local EXACTLY_UP_TO, AT_ALL_UP_TO = 1000, 10000
local now = now_ms()
local length = redis.call('LLEN', r)
redis.call('LLEN', k)
redis.call('LLEN', ks)
redis.call('ZCARD', w)
redis.call('HLEN', g)
local parked = redis.call('SRANDMEMBER', p, ARGV[1])

-- Scripts count on these, and stop where one is no number: somebody else wrote it. They begin anew without it.
local MOST_DIGITS = 16
local COUNTS = {'audited to', 'id memory began', 'left over', 'sent on', 'skipped', 'stood in line', 'tick'}
local counted = redis.call('HMGET', c, unpack(COUNTS))
for i, name in ipairs(COUNTS) do
  local digits = counted[i] and string.match(counted[i], '^%-?(%d+)$')
  if counted[i] and not (digits and #digits <= MOST_DIGITS) then redis.call('HDEL', c, name) end
end

local function row_and_record(id)
  return well_formed(redis.call('HGET', m, id)), redis.call('HGET', b, id)
end

for _, id in ipairs(parked) do
  local row, record = row_and_record(id)
  if not newer(record) and not (row and record and has_flag(byte(row, 1), PARKED)) then redis.call('SREM', p, id) end
end

local function stands_in_line(entry, key, id)
  local row, record = row_and_record(id)
  if newer(record) then return true end
  local _, own_key = concurrency(readable(record))
  return row and own_key == key and state_of(row) == 'ready' and in_line(row) and line_entry(id, row, key) == entry
end

local lines = redis.call('ZCARD', w)
local first = lines > tonumber(ARGV[1]) and now % lines or 0
local keys = {}
for _, entry in ipairs(redis.call('ZRANGE', w, first, first + ARGV[1] - 1)) do
  local ends = find(entry, '\0', 1, true) or 0
  local key = sub(entry, 1, ends - 1)
  if ends == 0 or not stands_in_line(entry, key, sub(entry, ends + 20)) then
    redis.call('ZREM', w, entry)
  end
  keys[key] = true
end
-- A place may have been offered to what is no message, and was then taken out by the step that found that out.
for key in pairs(keys) do
  if offer_places(key) > 0 then wake(k) end
end

local function places()
  return redis.call('LLEN', r) - tonumber(redis.call('HGET', c, 'left over') or 0) + redis.call('ZCARD', z)
    + redis.call('ZCARD', w) + redis.call('ZCARD', s) + redis.call('ZCARD', f) + redis.call('LLEN', d)
    + redis.call('LLEN', dx) + redis.call('ZCARD', x)
end

local records = redis.call('HLEN', b)
local doubtful = records > places()

-- When the message at the head of the list became ready: all others in it did so later.
local head = length > 0 and redis.call('LINDEX', r, 0)
local head_row = head and well_formed(redis.call('HGET', m, head))
local head_record = head and readable(redis.call('HGET', b, head))
local head_since = head_row and number6(head_row, 45) or head_record and number6(head_record, 5) or 0

local function is_listed(id, since)
  if length == 0 then return false end
  if doubtful and length <= EXACTLY_UP_TO or since < head_since and length <= AT_ALL_UP_TO then
    return redis.call('LPOS', r, id)
  end
  return true
end

local function is_ready_somewhere(id, row, record)
  if redis.call('ZSCORE', s, id) then return true end  -- set aside by an earlier version
  local _, key = concurrency(record)
  if key and row and in_line(row) and redis.call('ZSCORE', w, line_entry(id, row, key)) then return true end
  if row and has_flag(byte(row, 1), WAITING) then return false end
  if record and priority_of(row or record) ~= 0 then return redis.call('ZSCORE', z, id) end
  return is_listed(id, row and number6(row, 45) or record and number6(record, 5) or 0)
end

local function make_ready_again(id, row, record)
  if row and in_line(row) then
    local flags = byte(row, 1)
    row = char(has_flag(flags, WAITING) and flags - WAITING or flags) .. sub(row, 2, 20) .. NEVER .. sub(row, 27)
    redis.call('HSET', m, id, row)
  end
  make_ready(id, record and priority_of(row or record) or 0, now)
  wake(k)
end

-- Returns whether the message stood nowhere.
local function put_in_place(id, row, record)
  local state = row and state_of(row) or 'ready'
  if state == 'ready' then
    if is_ready_somewhere(id, row, record) then return false end
    make_ready_again(id, row, record)
  elseif state == 'scheduled' then
    if redis.call('ZSCORE', s, id) then return false end
    redis.call('ZADD', s, string.format('%.0f', math.max(number6(row, 39), number6(row, 57))), id)
    wake(ks)
  elseif state == 'reserved' then
    if redis.call('ZSCORE', f, id) then return false end
    redis.call('ZADD', f, now, id)
  elseif state == 'dead' then
    if redis.call('ZSCORE', x, id) then return false end
    redis.call('ZADD', x, number6(row, 27), id)
  else
    return false  -- it has ended: nothing is lost
  end
  return true
end

local from = redis.call('HGET', c, 'audited to') or '0'
local page = redis.call('HSCAN', b, from, 'COUNT', ARGV[1])
local to, entries, placed = tostring(page[1]), page[2], 0
for i = 1, #entries, 2 do
  local id, record = entries[i], entries[i + 1]
  if not newer(record) and put_in_place(id, well_formed(redis.call('HGET', m, id)), readable(record)) then
    placed = placed + 1
  end
end
if to ~= from then redis.call('HSET', c, 'audited to', to) end
return {placed, records > places() and 1 or 0, from == '0' and to == '0' and 1 or 0}
