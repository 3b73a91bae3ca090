-- Accept messages: into the queue, or into the schedule where a due time lies ahead. All of them, or none.
-- KEYS b m r z s u c k ks v
-- ARGV count; for each: id, when ('' now, '+n' in n ms, '=n' at epoch ms n), unique key ('' for none) after its
--   lifetime in ms (0 for none) and a colon, priority, record less scheduled
-- Returns for each the id under which it is held: its own twice over is a repeated call, another's a duplicate;
--   '' for a new message
-- First write grows memory, and the script may not outgrow it: a full server refuses with nothing changed.

local count = tonumber(ARGV[1])
local now = now_ms()
local stamp = be6(now)
local ids = {}
for i = 1, count do ids[i] = ARGV[5 * i - 3] end

local rows = redis.call('HMGET', m, unpack(ids))
local records = redis.call('HMGET', b, unpack(ids))
redis.call('LLEN', r)
redis.call('ZCARD', z)
redis.call('ZCARD', s)
redis.call('HLEN', c)
redis.call('HLEN', u)
redis.call('LLEN', k)
redis.call('LLEN', ks)
local results = redis.call('HLEN', v)

local held, seen, keys = {}, {}, {}
local new_records, new_rows, ready, ranked, scheduled, unique = {}, {}, {}, {}, {}, {}
for i = 1, count do
  local at = 5 * i - 3
  local id, when, key = ids[i], ARGV[at + 1], ARGV[at + 2]
  local holder = (rows[i] or records[i] or seen[id]) and id
  if not holder and key ~= '' then
    local colon = find(key, ':', 1, true)
    local lifetime = tonumber(sub(key, 1, colon - 1))
    key = sub(key, colon + 1)
    holder = keys[key] or holder_of(key, now)
    if not holder then
      keys[key] = id
      unique[#unique + 1] = key
      unique[#unique + 1] = lifetime > 0 and string.format('%s\n%.0f', id, now + lifetime) or id
    end
  end
  if holder then
    held[i] = holder
  else
    held[i] = ''
    seen[id] = true
    local priority, body = tonumber(ARGV[at + 3]), ARGV[at + 4]
    local record = sub(body, 1, 4) .. stamp .. sub(body, 5)
    new_records[#new_records + 1] = id
    new_records[#new_records + 1] = record
    local due = 0
    if when ~= '' then
      due = tonumber(sub(when, 2))
      if sub(when, 1, 1) == '+' then due = now + due end
    end
    if due > now then
      local at = handler_at(record)
      local large = #record > 1024 and LARGE or 0
      new_rows[#new_rows + 1] = id
      new_rows[#new_rows + 1] = char(byte(record, 2) + large) .. '\0' .. sub(record, 3, 4) .. '\0\0\0\0' .. NEVER
        .. NEVER .. NEVER .. NEVER .. stamp .. be6(due) .. NEVER .. NEVER .. NEVER
        .. sub(record, at, find(record, '\n', at, true) - 1)
      scheduled[#scheduled + 1] = string.format('%.0f', due)
      scheduled[#scheduled + 1] = id
    elseif priority == 0 then
      ready[#ready + 1] = id
    else
      ranked[#ranked + 1] = priority
      ranked[#ranked + 1] = id
    end
  end
end

if #new_records > 0 then
  redis.call('HSET', b, unpack(new_records))
  -- The result of a message that had the same id, and is forgotten, is not theirs.
  for i = 1, results > 0 and #new_records or 0, 2 do redis.call('HDEL', v, new_records[i]) end
end
if #unique > 0 then redis.call('HSET', u, unpack(unique)) end
if #ready > 0 then redis.call('RPUSH', r, unpack(ready)) end
if #ranked > 0 then
  local tick = next_ticks(#ranked / 2, now)
  for i = 1, #ranked, 2 do
    ranked[i] = ready_score(ranked[i], tick)
    tick = tick + 1
  end
  redis.call('ZADD', z, unpack(ranked))
end
if #ready > 0 or #ranked > 0 then wake(k) end
if #scheduled > 0 then
  local head = redis.call('ZRANGE', s, 0, 0, 'WITHSCORES')[2]
  redis.call('HSET', m, unpack(new_rows))
  redis.call('ZADD', s, unpack(scheduled))
  if not head or tonumber(redis.call('ZRANGE', s, 0, 0, 'WITHSCORES')[2]) < tonumber(head) then wake(ks) end
end
return held
