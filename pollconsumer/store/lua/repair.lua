-- Find messages that are in no list, and put them where their row says. A script that a missing right has interrupted
-- may have written a record and nothing else.
-- KEYS records rows ready ready_by_priority schedule in_flight completed cancelled expired dead_letters
-- KEYS waiting_for_place order_heads counters ready_marker schedule_marker places_taken parked
-- NEEDS places
-- ARGV records to examine, approximately
-- Returns messages repaired; 1 while there are more records than entries in lists, so that others are missing; 1 if all
--   records have been examined
-- Goes on where the last call ended. A long list is not searched: a later call does it, when the list is shorter, or
-- all messages before have been handled. It also examines a few ids that wait for a concurrency key, or are parked, and
-- removes stale ones, which would be counted for ever.

local EXACTLY_UP_TO, AT_ALL_UP_TO = 1000, 10000
local now = now_ms()
local length = redis.call('LLEN', ready)
-- EXPECT ready_marker schedule_marker waiting_for_place places_taken
local parked_ids = redis.call('SRANDMEMBER', parked, ARGV[1])

-- Corrupt counters would make other scripts fail: delete them, so that they begin at 0.
local MOST_DIGITS = 16
local counts = {'audited to', 'id memory began', DUPLICATES, 'rates looked at', 'sent on', 'skipped', 'stood in line', 'tick'}
local counted = redis.call('HMGET', counters, unpack(counts))
for i, name in ipairs(counts) do
  local digits = counted[i] and string.match(counted[i], '^%-?(%d+)$')
  if counted[i] and not (digits and #digits <= MOST_DIGITS) then redis.call('HDEL', counters, name) end
end

local function row_and_record(id)
  return well_formed(redis.call('HGET', rows, id)), redis.call('HGET', records, id)
end

for _, id in ipairs(parked_ids) do
  local row, record = row_and_record(id)
  if not newer(record) and not (row and record and has_flag(byte(row, FLAGS), PARKED)) then redis.call('SREM', parked, id) end
end

local lines = redis.call('ZCARD', waiting_for_place)
local first = lines > tonumber(ARGV[1]) and now % lines or 0
local keys = {}
for _, entry in ipairs(redis.call('ZRANGE', waiting_for_place, first, first + ARGV[1] - 1)) do
  local ends = find(entry, '\0', 1, true) or 0
  local key = sub(entry, 1, ends - 1)
  local id = id_in_line(entry, key)
  local row, record = row_and_record(id)
  local _, own_key = concurrency(readable(record))
  local ordered = sub(key, 1, 1) == IN_ORDER and order_key(record)
  local stands = row and (ordered and IN_ORDER .. ordered or own_key) == key and state_of(row) == 'ready' and in_line(row) and line_entry(id, row, key) == entry
  if ends == 0 or not (newer(record) or stands) then redis.call('ZREM', waiting_for_place, entry) end
  keys[key] = true
end
-- A place may have been offered to an id without a message, which a step has dropped.
for key in pairs(keys) do
  if offer_places(key) > 0 then wake(ready_marker) end
end

local function entry_count()
  return redis.call('LLEN', ready) - tonumber(redis.call('HGET', counters, DUPLICATES) or 0)
    + redis.call('ZCARD', ready_by_priority) + redis.call('ZCARD', waiting_for_place) + redis.call('ZCARD', schedule)
    + redis.call('ZCARD', in_flight) + redis.call('LLEN', completed) + redis.call('LLEN', cancelled)
    + redis.call('LLEN', expired) + redis.call('ZCARD', dead_letters)
end

local record_count = redis.call('HLEN', records)
local suspect = record_count > entry_count()

-- When the head of the ready list became ready; all others became ready later.
local head = length > 0 and redis.call('LINDEX', ready, 0)
local head_row = head and well_formed(redis.call('HGET', rows, head))
local head_record = head and readable(redis.call('HGET', records, head))
local head_since = head_row and number6(head_row, ENQUEUED) or head_record and number6(head_record, RECORD_SCHEDULED) or 0

local function is_ready_somewhere(id, row, record)
  if redis.call('ZSCORE', schedule, id) then return true end  -- deferred by an earlier version
  local _, key = concurrency(record)
  if key and row and in_line(row) and redis.call('ZSCORE', waiting_for_place, line_entry(id, row, key)) then return true end
  local ordered = row and in_line(row) and order_key(record)
  if ordered and redis.call('ZSCORE', waiting_for_place, line_entry(id, row, IN_ORDER .. ordered)) then return true end
  if row and has_flag(byte(row, FLAGS), WAITING) then return false end
  if record and priority_of(row or record) ~= 0 then return redis.call('ZSCORE', ready_by_priority, id) end
  local since = row and number6(row, ENQUEUED) or record and number6(record, RECORD_SCHEDULED) or 0
  if suspect and length <= EXACTLY_UP_TO or since < head_since and length <= AT_ALL_UP_TO then
    return redis.call('LPOS', ready, id)
  end
  return length > 0
end

local indexes = {scheduled = schedule, reserved = in_flight, dead = dead_letters}

-- Returns whether the message was in no list, and was put into one.
local function restore(id, row, record)
  local state = row and state_of(row) or 'ready'
  local index = indexes[state]
  if state == 'ready' then
    if is_ready_somewhere(id, row, record) then return false end
    if row and in_line(row) then
      row = set(row, FLAGS, char(without_flag(byte(row, FLAGS), WAITING)), NUMBER_IN_LINE, NEVER)
      redis.call('HSET', rows, id, row)
    end
    make_ready(id, record and priority_of(row or record) or 0, now)
    wake(ready_marker)
  elseif not index or redis.call('ZSCORE', index, id) then
    return false  -- without an index, it has ended: nothing is lost
  elseif state == 'scheduled' then
    -- A row has the due time without microseconds: it is past only at the next millisecond.
    redis.call('ZADD', schedule, due_score(math.max(number6(row, DUE), number6(row, NEXT_ATTEMPT)) + 1), id)
    wake(schedule_marker)
  elseif state == 'reserved' then
    redis.call('ZADD', in_flight, now, id)
  else
    redis.call('ZADD', dead_letters, number6(row, ENDED), id)
  end
  return true
end

local from = redis.call('HGET', counters, 'audited to') or '0'
local page = redis.call('HSCAN', records, from, 'COUNT', ARGV[1])
local to, entries, placed = tostring(page[1]), page[2], 0
for i = 1, #entries, 2 do
  local id, record = entries[i], entries[i + 1]
  -- GUARD records of a newer version
  if not newer(record) and restore(id, well_formed(redis.call('HGET', rows, id)), readable(record)) then
    placed = placed + 1
  end
end
if to ~= from then redis.call('HSET', counters, 'audited to', to) end
return {placed, record_count > entry_count() and 1 or 0, from == '0' and to == '0' and 1 or 0}
