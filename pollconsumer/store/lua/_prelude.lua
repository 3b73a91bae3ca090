-- Stands before every script. The loader binds KEYS to the names that the script's header gives; functions here use the
-- names that they need, and only scripts that bind those call them.
--
-- A row (hash m) is 62 bytes and the handler's name; numbers are big-endian, instants are epoch milliseconds:
--   1 flags (1 large record, 2 unique key, 4 parked, 8 concurrency key, 16 waiting for it, 32 begun for the only time,
--     64 has a checkpoint)   2 ending (0, c completed, d dead, x cancelled)
--   3-4 priority + 32768   5-6 attempts   7 crashes (255: it died, or ended unsettled, in its last attempt)
--   8 generation   9-14 fence
--   15-20 reserved   21-26 started (while it is ready: its number among those in line for a concurrency key)
--   27-32 ended   33-38 scheduled   39-44 due   45-50 enqueued   51-56 failed   57-62 next attempt
-- A record (hash b) is a header, the unique key, where flag 8 is set the concurrency key, the handler's name, a line
-- feed, the payload:
--   1 version   2 flags   3-4 priority + 32768   5-10 scheduled   11 length of the unique key
--   a concurrency key is: most messages in flight with it, its length, itself

local NEVER = '\0\0\0\0\0\0'
local byte, char, floor, sub, find = string.byte, string.char, math.floor, string.sub, string.find
local LARGE, UNIQUE, PARKED, CONCURRENCY, WAITING, BEGUN, CHECKPOINT = 1, 2, 4, 8, 16, 32, 64
local SPENT = 255

local function be6(n)
  local low = n % 16777216
  local high = (n - low) / 16777216
  return char(floor(high / 65536), floor(high / 256) % 256, high % 256,
    floor(low / 65536), floor(low / 256) % 256, low % 256)
end

local function number6(s, at)
  local a, b1, c1, d1, e1, f1 = byte(s, at, at + 5)
  return ((((a * 256 + b1) * 256 + c1) * 256 + d1) * 256 + e1) * 256 + f1
end

-- Whether a stored value is a whole number that a row can hold; somebody else may have written anything.
local function whole(text)
  return text and #text < 16 and find(text, '^%d+$') ~= nil and tonumber(text) < 281474976710656
end

-- Why a holder is refused: FENCED where a newer one has announced itself, FORGOTTEN where the store knows of none, as
-- after it was emptied. Nil where the fence is the one that was announced.
local function not_ours(lineage, fence)
  local seen = redis.call('HGET', t, lineage)
  if seen == fence then return nil end
  return redis.error_reply((seen and 'FENCED ' or 'FORGOTTEN ') .. lineage)
end

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + floor(tonumber(time[2]) / 1000)
end

local function priority_of(s)
  local high, low = byte(s, 3, 4)
  return high * 256 + low - 32768
end

-- A row, or a record, that can be taken apart; what somebody else wrote there may be anything.
local function well_formed(row)
  return row and #row >= 62 and row or nil
end

local function has_flag(flags, flag)
  return floor(flags / flag) % 2 == 1
end

-- Where the handler's name begins in a record; beyond its end where that is cut short.
local function handler_at(record)
  local at = 12 + byte(record, 11)
  if has_flag(byte(record, 2), CONCURRENCY) then at = at + 2 + (byte(record, at + 1) or #record) end
  return at
end

-- Records of later versions begin with the letters after A. Nothing else in them is known here: they are left as they are.
local function newer(record)
  local version = record and byte(record, 1)
  return version and version > 65 and version <= 90
end

local function readable(record)
  if not record or #record < 12 or byte(record, 1) ~= 65 then return nil end
  local at = byte(record, 2) < CONCURRENCY and 12 + byte(record, 11) or handler_at(record)
  return find(record, '\n', at, true) and record or nil
end

local function state_of(row)
  local ending = sub(row, 2, 2)
  if ending == 'c' then return 'completed' elseif ending == 'd' then return 'dead' elseif ending == 'x' then
    return 'cancelled'
  end
  if sub(row, 15, 20) ~= NEVER then return 'reserved' end
  return sub(row, 45, 50) ~= NEVER and 'ready' or 'scheduled'
end

-- The row of a message that has none yet: it is ready, and was never reserved.
local function fresh_row(record)
  local at, scheduled = handler_at(record), sub(record, 5, 10)
  return char(byte(record, 2) + (#record > 1024 and LARGE or 0)) .. '\0' .. sub(record, 3, 4) .. '\0\0\0\0' .. NEVER
    .. NEVER .. NEVER .. NEVER .. scheduled .. NEVER .. scheduled .. NEVER .. NEVER
    .. sub(record, at, (find(record, '\n', at, true) or #record + 1) - 1)
end

-- Ready messages of another priority than 0 are ordered by when they became ready, in ticks of 1/1024 ms, a level of
-- priority counting as much as an hour of waiting: so nothing is overtaken for ever. (Ageing by a score that is never
-- computed again: every message ages at the same rate.)
local TICKS, LEVEL = 1024, 1024 * 3600 * 1000

local function ready_score(priority, tick)
  return string.format('%.0f', priority * LEVEL + tick)
end

-- Which of the commands in ARGV, from `first` on, the caller may not use on `key`. None of them is carried out. Without this a
-- script that lacks the right to its third command leaves the first two done. Not for commands that say how many keys
-- follow: with too few arguments those end the server.
local function lacking_rights(key, first)
  local lacking = {}
  if not redis.acl_check_cmd then return lacking end
  for i = first, #ARGV do
    local call = {}
    for word in string.gmatch(ARGV[i], '[^|]+') do call[#call + 1] = word end
    call[#call + 1] = key
    if not find(' DEL EXISTS UNLINK ', ' ' .. ARGV[i] .. ' ', 1, true) then
      call[#call + 1] = ARGV[i] == 'RENAME' and key or '1'
    end
    local known, allowed = pcall(redis.acl_check_cmd, unpack(call))
    if not (known and allowed) then lacking[#lacking + 1] = ARGV[i] end
  end
  return lacking
end

-- A marker is a list of at most one element: it outlives the moment, so no wake-up is lost, and it cannot grow.
local function wake(marker)
  if redis.call('EXISTS', marker) == 0 then redis.call('RPUSH', marker, 1) end
end

-- The first of `count` ticks that no message has had: of now, or after the last one.
local function next_ticks(count, now)
  local first = math.max((tonumber(redis.call('HGET', c, 'tick') or 0) or 0) + 1, now * TICKS)
  redis.call('HSET', c, 'tick', string.format('%.0f', first + count - 1))
  return first
end

local function make_ready(id, priority, now)
  if priority == 0 then
    redis.call('RPUSH', r, id)
  else
    redis.call('ZADD', z, ready_score(priority, next_ticks(1, now)), id)
  end
end

local back = 0  -- how many messages this script has put back

-- Back where it was, before all that became ready with it or after it, and before what was put back before it.
local function put_back(id, row)
  local priority = priority_of(row)
  if priority == 0 then
    redis.call('LPUSH', r, id)
  else
    redis.call('ZADD', z, ready_score(priority, number6(row, 45) * TICKS - 1 - back), id)
  end
  back = back + 1
end

-- Unique keys: a key's holder, and after a line feed the instant at which it ceases to be one, where it has such.
local function holds_key(id, key)
  local held = redis.call('HGET', u, key)
  return held and (held == id or sub(held, 1, #id + 1) == id .. '\n')
end

-- The unfinished message that holds a key. What ended, or vanished, holds none, whatever stands there.
local function holder_of(key, now)
  local held = redis.call('HGET', u, key)
  if not held then return nil end
  local id, lapses = string.match(held, '^([^\n]*)\n?(%d*)')
  if lapses ~= '' and tonumber(lapses) <= now then return nil end
  local row = redis.call('HGET', m, id)
  if row and sub(row, 2, 2) ~= '\0' or not row and redis.call('HEXISTS', b, id) == 0 then return nil end
  return id
end

local function unique_key(record)
  return sub(record, 12, 11 + byte(record, 11))
end

local function free_key(id, record)
  local key = unique_key(record)
  if holds_key(id, key) then redis.call('HDEL', u, key) end
end

-- Forgotten messages: their ids are kept, each with its digest ('' where it has none), in the younger of two generations. The
-- older one goes when the younger has lasted its time, or holds as many as it may.
local function remember(ids, now, lasts, most)
  local size, before = redis.call('HLEN', id_memory), redis.call('HLEN', id_memory_before)
  local began = tonumber(redis.call('HGET', c, 'id memory began') or 0) or 0
  local over = now - began >= lasts or size >= most
  if over and size + before > 0 then
    redis.call('UNLINK', id_memory_before)
    if size > 0 then redis.call('RENAME', id_memory, id_memory_before) end
  end
  if over or now < began then redis.call('HSET', c, 'id memory began', now) end
  if #ids == 0 then return end
  local digested = redis.call('HLEN', digests) > 0 and redis.call('HMGET', digests, unpack(ids))
  local remembered = {}
  for i = 1, #ids do
    remembered[2 * i - 1], remembered[2 * i] = ids[i], digested and digested[i] or ''
  end
  redis.call('HSET', id_memory, unpack(remembered))
  if digested then redis.call('HDEL', digests, unpack(ids)) end
end

-- Concurrency keys. Hash g counts what is in flight with each. What finds the places of its key taken stands in line, and
-- so does what comes back from being in flight: in w, ordered by key, then as ready messages are. As many as there are
-- free places, from the first in line, are offered one: these stand among the ready messages too, where c counts them
-- as left over, lest they be counted twice. All others in line have the flag that they wait. Offering again offers
-- nothing anew.

-- Most messages in flight with the concurrency key of a record, and that key; nothing where it has none.
local function concurrency(record)
  if not record or not has_flag(byte(record, 2), CONCURRENCY) then return nil end
  local at = 12 + byte(record, 11)
  return byte(record, at), sub(record, at + 2, at + 1 + byte(record, at + 1))
end

local function in_line(row)
  return sub(row, 21, 26) ~= NEVER
end

local function line_entry(id, row, key)
  local since = number6(row, 45) + (priority_of(row) + 4096) * 3600000
  return key .. '\0' .. string.format('%013.0f', since) .. sub(row, 21, 26) .. id
end

-- The row and the entry in w of what has to stand in line. Among those that became ready in the same ms the number says
-- who is first; one that stood among them before has one below FIRST_NUMBER.
local FIRST_NUMBER = 1099511627776

local function standing(id, row, key, number)
  if not in_line(row) then row = sub(row, 1, 20) .. be6(number) .. sub(row, 27) end
  return char(byte(row, 1) + WAITING) .. sub(row, 2), line_entry(id, row, key)
end

local function leave_line(id, row, key)
  redis.call('ZREM', w, line_entry(id, row, key))
end

-- Offer the places of a key that are free. Returns how many messages are offered one that were not before.
local function offer_places(key)
  local from, to = '[' .. key .. '\0', '(' .. key .. '\1'
  local line = redis.call('ZRANGEBYLEX', w, from, to, 'LIMIT', 0, 1)
  if #line == 0 then return 0 end
  local taken = tonumber(redis.call('HGET', g, key) or 0)
  local most = concurrency(readable(redis.call('HGET', b, sub(line[1], #key + 21)))) or taken + 1
  if most - taken < 1 then return 0 end
  if most - taken > 1 then line = redis.call('ZRANGEBYLEX', w, from, to, 'LIMIT', 0, most - taken) end
  local offered = 0
  for i = #line, 1, -1 do
    local id = sub(line[i], #key + 21)
    local row = well_formed(redis.call('HGET', m, id))
    if row and state_of(row) == 'ready' and line_entry(id, row, key) == line[i] then
      if has_flag(byte(row, 1), WAITING) then
        redis.call('HSET', m, id, char(byte(row, 1) - WAITING) .. sub(row, 2))
        redis.call('HINCRBY', c, 'left over', 1)
        put_back(id, row)
        offered = offered + 1
      end
    else
      redis.call('ZREM', w, line[i])
      if not row then redis.call('LPUSH', r, id) end  -- for the step that reserves it to find out what it lacks
      offered = offered + (row and 0 or 1)
    end
  end
  return offered
end

local function leave_place(key)
  if redis.call('HINCRBY', g, key, -1) <= 0 then redis.call('HDEL', g, key) end
end

-- Ids of what is in flight, with their rows, in the order in which it was reserved; `ids` in that of their scores.
local function by_reservation(ids, rows)
  local order = {}
  for i = 1, #ids do
    local row = well_formed(rows[i])
    order[i] = {id = ids[i], row = row, at = row and number6(row, 15) or 0, rank = i}
  end
  table.sort(order, function(one, other)
    if one.at ~= other.at then return one.at < other.at end
    return one.rank < other.rank
  end)
  return order
end

-- Back from being in flight, with its row as it is to be.
local function come_back(id, row)
  local _, key = concurrency(has_flag(byte(row, 1), CONCURRENCY) and readable(redis.call('HGET', b, id)))
  if key then
    leave_place(key)
    local number = FIRST_NUMBER - redis.call('HINCRBY', c, 'stood in line', 1)
    local stands, entry = standing(id, row, key, number)
    redis.call('HSET', m, id, stands)
    redis.call('ZADD', w, 0, entry)
    offer_places(key)
  else
    redis.call('HSET', m, id, row)
    put_back(id, row)
  end
end

-- Out of the schedule, or of what is ready. Taking one out of the middle of a list is slow: its id stays there until it
-- is popped, is not ready then, and is counted until that time.
local function take_out(id, row, record, state)
  if state == 'scheduled' then
    redis.call('ZREM', s, id)
    return
  end
  local _, key = concurrency(record)
  local lined, waiting = in_line(row), has_flag(byte(row, 1), WAITING)
  if lined and key then leave_line(id, row, key) end
  if priority_of(row) == 0 then
    if not lined then redis.call('HINCRBY', c, 'left over', 1) end
  elseif not waiting then
    redis.call('ZREM', z, id)
    if lined then redis.call('HINCRBY', c, 'left over', -1) end
  end
  if key and not waiting and offer_places(key) > 0 then wake(k) end
end
