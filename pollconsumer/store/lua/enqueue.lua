-- Accept messages: into the queue, or into the schedule where a due time lies ahead. All of them, or none.
-- KEYS b m r z s u c k ks v id_memory id_memory_before digests received
--   (the last two only where an id was chosen by the user, or an outbox is named)
-- ARGV count; for a repetition '@' and the last instant at which it is accepted, or the outbox that this comes from: its
--   queue, the number of its entry, the place in that of the first message here; else '';
--   for each: id, when ('' now, '+n' in n ms, '=n' at epoch ms n), unique key ('' for none) after its lifetime in ms (0
--   for none) and a colon, priority, record less scheduled;
--   for each whose id the user chose: its position above, from 1, and the digest of its handler and payload
-- Returns for each the id under which it is held: its own twice over is a repeated call, another's a duplicate;
--   '' for a new message. Or, with nothing changed: the position of one whose id has another digest; 0 when it is too late
-- First write grows memory, and the script may not outgrow it: a full server refuses with nothing changed.

local count = tonumber(ARGV[1])
local now = now_ms()
if sub(ARGV[2], 1, 1) == '@' and now > tonumber(sub(ARGV[2], 2)) then return 0 end
local stamp = be6(now)
local ids = {}
for i = 1, count do ids[i] = ARGV[5 * i - 2] end

local rows = redis.call('HMGET', m, unpack(ids))
local records = redis.call('HMGET', b, unpack(ids))
local results = redis.call('HLEN', v)
local NONE = {}
local younger, older, chosen, digested = NONE, NONE, NONE, NONE
if redis.call('EXISTS', id_memory, id_memory_before) > 0 then
  younger, older = redis.call('HMGET', id_memory, unpack(ids)), redis.call('HMGET', id_memory_before, unpack(ids))
end
if #ARGV > 5 * count + 2 then
  chosen = {}
  for at = 5 * count + 3, #ARGV, 2 do chosen[tonumber(ARGV[at])] = ARGV[at + 1] end
  digested = redis.call('HMGET', digests, unpack(ids))
end

-- Entries of an outbox are numbered, and sent in that order by whoever sends them: what does not lie behind the last one that was
-- received has been received. A number that lies a day ahead is none of ours.
local known = 0  -- how many of these, from the first, were received before
local outbox, number, first
if ARGV[2] ~= '' then outbox, number, first = string.match(ARGV[2], '^(%S+) (%d+) (%d+)$') end
if outbox then
  number, first = tonumber(number), tonumber(first)
  if number > (now + 86400000) * 1000 then
    outbox = nil
  else
    local entry, place = string.match(redis.call('HGET', received, outbox) or '', '^(%d+) (%d+)$')
    if entry then
      known = number < tonumber(entry) and count or number > tonumber(entry) and 0 or tonumber(place) + 1 - first
    end
  end
end

local held, seen, keys = {}, {}, {}
local new_records, new_rows, ready, ranked, scheduled, unique, new_digests = {}, {}, {}, {}, {}, {}, chosen == NONE and NONE or {}
for i = 1, count do
  local at = 5 * i - 2
  local id, when, key = ids[i], ARGV[at + 1], ARGV[at + 2]
  local earlier = seen[id] or younger[i] or older[i]
  local holder = (rows[i] or records[i] or earlier or i <= known) and id
  if holder and chosen[i] and i > known then
    earlier = digested[i] or earlier or ''
    if earlier ~= '' and earlier ~= chosen[i] then return i end
  end
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
    seen[id] = chosen[i] or ''
    if chosen[i] then
      new_digests[#new_digests + 1] = id
      new_digests[#new_digests + 1] = chosen[i]
    end
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

-- Whatever is written below is of its type, or all of this is refused before the first write.
if #ready + #ranked > 0 then redis.call('LLEN', k) end
if #ready > 0 then redis.call('LLEN', r) end
if #ranked > 0 then
  redis.call('ZCARD', z)
  redis.call('HLEN', c)
end
if #scheduled > 0 then
  redis.call('ZCARD', s)
  redis.call('LLEN', ks)
end

if #new_records > 0 then
  redis.call('HSET', b, unpack(new_records))
  -- The result of a message that had the same id, and is forgotten, is not theirs.
  for i = 1, results > 0 and #new_records or 0, 2 do redis.call('HDEL', v, new_records[i]) end
end
if #new_digests > 0 then redis.call('HSET', digests, unpack(new_digests)) end
if outbox and known < count then
  redis.call('HSET', received, outbox, string.format('%.0f %.0f', number, first + count - 1))
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
