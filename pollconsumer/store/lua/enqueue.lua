-- Enqueue messages, all of them or none: into the queue, or into the schedule if they are due later.
-- KEYS records rows ready ready_by_priority schedule unique_keys counters ready_marker schedule_marker results
-- KEYS id_memory id_memory_before id_digests id_digests_before received last_answer places_taken waiting_for_place order_heads checkpoints rates
-- NEEDS ready unique_keys markers results lists
--   (`received` only with an outbox; `last_answer` where the answer is kept; the last ones where the one that waits may be
--   replaced, and up to `waiting_for_place` with a limit)
-- ARGV count; for a repetition '@' and the last instant at which it is accepted; then, if the answer is kept, '#' and
--   the number of the call; or for an outbox: its queue, the number of the entry, the position in it of the first
--   message; else '';
--   for each: id, record without its instant, or only what follows the instant if it has no options;
--   for each with options: its position; when ('' now, '+n' in n ms, '=n' at epoch ms n, n may have a fraction); ms
--     that the unique key lasts (0: no limit), a colon and the key ('' for none); priority. Before the colon may stand:
--     an 's', if a message in flight does not hold the key; or an 'r' and a number, if the message, alone in its call,
--     replaces a waiting one, which is due at most so many ms after its first enqueueing (0: no limit). Last, if the
--     queue has a limit: 0, '', '', how many messages may be ready
-- Returns nothing if all are new; else for each '' if it is new, or the id of the existing message with its id or
--   unique key. Or, with nothing enqueued: the position of a message whose id belongs to another one (the first of an
--   outbox entry then counts as received); 0 if it is too late for a repetition; -1 less the number of ready messages,
--   if there would be more than may be
-- The answer is kept under the number of the call, until the producer's next call, so a repetition gets the same
-- answer.
-- Without allow-oom, a full server refuses the script's first write, with nothing changed.

local ANSWER_KEPT_MS = 360000  -- a minute longer than a call is repeated
local count = tonumber(ARGV[1])
local exactly = exactly_now()
local now = floor(exactly)
local last, call = nil, ''
if ARGV[2] ~= '' then last, call = string.match(ARGV[2], '^@?(%d*)(#?%d*)$') end
if last and last ~= '' then
  local kept = call ~= '' and redis.call('GET', last_answer)
  if kept and find(kept, call .. '\n', 1, true) == 1 then  -- GUARD the answer to the first attempt
    local ids = {}
    for id in string.gmatch(sub(kept, #call + 2), '([^\n]*)\n') do ids[#ids + 1] = id end
    return ids
  end
  if now > tonumber(last) then return 0 end  -- GUARD too late for a repetition
end
local stamp = be6(now)
local ids = {}
for i = 1, count do ids[i] = ARGV[2 * i + 1] end

local found_rows = redis.call('HMGET', rows, unpack(ids))
local found_records = redis.call('HMGET', records, unpack(ids))
local result_count = redis.call('HLEN', results)
local younger, older = {}, {}
if redis.call('EXISTS', id_memory, id_memory_before) > 0 then
  younger = redis.call('SMISMEMBER', id_memory, unpack(ids))
  older = redis.call('SMISMEMBER', id_memory_before, unpack(ids))
end

-- Entries of an outbox are numbered and sent in order, so those up to the last one received are duplicates. A number
-- that is a day ahead is corrupt.
local known = 0  -- how many of these, from the first, were received before
local sender, number, first
if ARGV[2] ~= '' then sender, number, first = string.match(ARGV[2], '^(%S+) (%d+) (%d+)$') end
if sender then
  number, first = tonumber(number), tonumber(first)
  if number > (now + 86400000) * 1000 then  -- GUARD a number a day ahead
    sender = nil
  else
    local entry, position = string.match(redis.call('HGET', received, sender) or '', '^(%d+) (%d+)$')
    if entry then
      known = number < tonumber(entry) and count or number > tonumber(entry) and 0 or tonumber(position) + 1 - first
    end
  end
end

local replaced = nil  -- the message that waits, and has what this one brings
if count == 1 and find(ARGV[7] or '', '^%d+r') then
-- PART replace
end

local held, any_held, seen, keys, options = {}, false, {}, {}, {}
for at = 2 * count + 3, #ARGV, 4 do options[tonumber(ARGV[at])] = at end
local new_records, new_rows, new_ready, new_ranked, scheduled, unique, any_chosen = {}, {}, {}, {}, {}, {}, false
local accepted, readied, begins = 0, 0, RECORD_BEGINS .. stamp
for i = 1, count do
  local id, record, at, when, key, priority = ids[i], ARGV[2 * i + 2], options[i], '', '', 0
  local chosen = nil  -- the digest of an id that the user chose
  if at then
    when, key, priority = ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
    record = sub(record, 1, RECORD_SCHEDULED - 1) .. stamp .. sub(record, RECORD_SCHEDULED)
    chosen = byte(record, RECORD_FLAGS) >= RECORD_ALONE and digest_of(nil, record)
  else
    record = begins .. record
  end
  local earlier = seen[id]  -- GUARD id in the page
  local forgotten = younger[i] == 1 or older[i] == 1  -- GUARD id in memory; ids of the generation before
  -- GUARD id in the store; received before
  local holder = replaced or (found_rows[i] or found_records[i] or earlier or forgotten or i <= known) and id
  if holder and chosen and i > known then
    earlier = digest_of(found_rows[i], found_records[i]) or earlier
      -- GUARD digests of the generation before
      or redis.call('HGET', id_digests, id) or redis.call('HGET', id_digests_before, id) or ''
    if earlier ~= '' and earlier ~= chosen then  -- GUARD digest compare
      if sender and i == 1 then redis.call('HSET', received, sender, string.format('%.0f %.0f', number, first)) end
      return i
    end
  end
  if not holder and key ~= '' then
    local lifetime, until_start, name = string.match(key, '^(%d+)(%a?)%d*:(.*)$')
    holder = keys[name] or holder_of(name, now)  -- GUARD unique key in the store; unique key in the page
    if holder and until_start ~= '' and not keys[name] then
      local row = redis.call('HGET', rows, holder)
      if row and six(row, RESERVED) ~= NEVER then holder = nil end  -- GUARD a key until its message starts
    end
    if not holder then
      keys[name] = id
      unique[#unique + 1] = name
      unique[#unique + 1] = lifetime ~= '0' and string.format('%s\n%.0f', id, now + lifetime) or id
    end
  end
  if holder then
    held[i], any_held = holder, true
  else
    held[i] = ''
    seen[id] = chosen or ''
    any_chosen = any_chosen or chosen
    local due = 0
    if when ~= '' then
      due = tonumber(sub(when, 2))
      if sub(when, 1, 1) == '+' then due = exactly + due end
    end
    -- GUARD expiry counts from the due time
    if at and byte(record, RECORD_FLAGS) >= RECORD_ALONE then record = expiring(record, math.max(now, due)) end
    new_records[accepted + 1], new_records[accepted + 2] = id, record
    accepted = accepted + 2
    if due > exactly then
      new_rows[#new_rows + 1], new_rows[#new_rows + 2] = id, fresh_row(record, floor(due))
      -- GUARD those with order keys that are due together keep their order, each a microsecond later
      if order_key(record) then due = due + #scheduled / 2000 end
      scheduled[#scheduled + 1], scheduled[#scheduled + 2] = due_score(due), id
    elseif priority == 0 then
      readied = readied + 1
      new_ready[readied] = id
    else
      new_ranked[#new_ranked + 1], new_ranked[#new_ranked + 2] = priority, id
    end
  end
end

local limit, coming = options[0], #new_ready + #new_ranked / 2
if limit and coming > 0 then
  local there = redis.call('LLEN', ready) + redis.call('ZCARD', ready_by_priority) + redis.call('ZCARD', waiting_for_place)
  there = math.max(0, there - (tonumber(redis.call('HGET', counters, DUPLICATES) or 0) or 0))
  if there + coming > tonumber(ARGV[limit + 3]) then return -1 - there end  -- GUARD the longest a queue may be
end

if #new_ready > 0 then
  -- EXPECT ready ready_marker
end
if #new_ranked > 0 then
  -- EXPECT ready_by_priority counters ready_marker
end
if #scheduled > 0 then
  -- EXPECT schedule schedule_marker
end

if #new_records > 0 then
  redis.call('HSET', records, unpack(new_records))
  if redis.call('HLEN', records) <= LONGEST_LIST then
    redis.call('HSET', records, LONG, '')
    redis.call('HDEL', records, LONG)
  end
  -- GUARD the result of a forgotten id
  for i = 1, result_count > 0 and #new_records or 0, 2 do drop_result(new_records[i]) end
end
if any_chosen then redis.call('HSET', counters, 'ids chosen', 1) end
if sender and known < count then
  redis.call('HSET', received, sender, string.format('%.0f %.0f', number, first + count - 1))
end
if #unique > 0 then redis.call('HSET', unique_keys, unpack(unique)) end
if #new_ready > 0 then redis.call('RPUSH', ready, unpack(new_ready)) end
if #new_ranked > 0 then
  local tick = next_ticks(#new_ranked / 2, now)
  for i = 1, #new_ranked, 2 do
    new_ranked[i] = ready_score(new_ranked[i], tick)
    tick = tick + 1
  end
  redis.call('ZADD', ready_by_priority, unpack(new_ranked))
end
if #new_ready > 0 or #new_ranked > 0 then wake(ready_marker) end
if #scheduled > 0 then
  local head = redis.call('ZRANGE', schedule, 0, 0, 'WITHSCORES')[2]
  redis.call('HSET', rows, unpack(new_rows))
  redis.call('ZADD', schedule, unpack(scheduled))
  if not head or tonumber(redis.call('ZRANGE', schedule, 0, 0, 'WITHSCORES')[2]) < tonumber(head) then wake(schedule_marker) end
end
if call and call ~= '' then
  redis.call('SET', last_answer, call .. '\n' .. table.concat(held, '\n') .. '\n', 'PX', ANSWER_KEPT_MS)
end
return any_held and held or {}
