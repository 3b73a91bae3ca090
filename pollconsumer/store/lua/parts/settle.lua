-- The first part of a step: settle. Its ARGV are a step's.

local settled = false  -- whether anything was
local stale = {}  -- ids whose reservation was no longer the caller's

-- Places are offered after all are freed, in the order of the line.
local freed, released = {}, {}

-- Free a message's unique key, if it has ended, and its place of a concurrency key.
local function free_keys(id, flags, has_ended)
  local unique, concurrent = has_ended and has_flag(flags, UNIQUE), has_flag(flags, CONCURRENCY)
  local record = (unique or concurrent) and readable(redis.call('HGET', records, id))
  if not record then return end
  if unique then free_key(id, record) end
  if concurrent then
    local _, key = concurrency(record)
    if key then
      free_place(key)
      freed[#freed + 1] = key
    end
  end
end

-- Hot path: most messages complete and have no keys.
local completions = tonumber(ARGV[7])
if completions > 0 then
  local ids, new_rows, gone, ended, dropped = {}, {}, {}, {}, {}
  for i = 8, 7 + 3 * completions, 3 do ids[#ids + 1] = ARGV[i] end
  local found_rows = redis.call('HMGET', rows, unpack(ids))
  for i = 1, completions do
    local at = 5 + 3 * i
    local row, id = ARGV[at + 2], ids[i]
    if found_rows[i] == ARGV[at + 1] then
      new_rows[#new_rows + 1], new_rows[#new_rows + 2] = id, row
      gone[#gone + 1] = id
      ended[#ended + 1] = sub(row, ENDED, SCHEDULED - 1) .. id
      local flags = byte(row, FLAGS)
      if flags > 0 then
        free_keys(id, flags, true)
        if has_flag(flags, LARGE) then dropped[#dropped + 1] = id end
        if has_flag(flags, CHECKPOINT) then redis.call('HDEL', checkpoints, id) end
      end
    elseif found_rows[i] ~= row then
      stale[#stale + 1] = id
    end
  end
  if #gone > 0 then
    redis.call('ZREM', in_flight, unpack(gone))
    redis.call('HSET', rows, unpack(new_rows))
    redis.call('RPUSH', completed, unpack(ended))
    if #dropped > 0 then redis.call('HDEL', records, unpack(dropped)) end
  end
  settled = true
end

for at = 8 + 3 * completions, #ARGV, 7 do
  local id, row, kind, ms, text = ARGV[at], ARGV[at + 2], ARGV[at + 3], tonumber(ARGV[at + 4]), ARGV[at + 5]
  local held = redis.call('HGET', rows, id)
  if held == ARGV[at + 1] and kind == 'begin' then
    redis.call('HSET', rows, id, row)
  elseif held == ARGV[at + 1] then
    local flags = byte(row, FLAGS)
    settled = true
    redis.call('ZREM', in_flight, id)
    if kind ~= 'complete' and text ~= '' then redis.call('HSET', errors, id, text) end
    if flags > 0 and kind ~= 'release' then free_keys(id, flags, kind == 'dead' or kind == 'complete') end
    if kind == 'complete' then
      redis.call('HSET', rows, id, row)
      redis.call('RPUSH', completed, six(row, ENDED) .. id)
      if has_flag(flags, LARGE) then redis.call('HDEL', records, id) end
      if has_flag(flags, CHECKPOINT) then redis.call('HDEL', checkpoints, id) end
      if text ~= '' then
        redis.call('HSET', results, id, text)
        redis.call('ZADD', result_ends, now + ms, id)
      end
      if ARGV[at + 6] ~= '' then
        -- Numbers rise, even if a failing server lost the last ones.
        local number = math.max(tonumber(redis.call('HGET', counters, 'sent on') or 0) + 1, now * 1000)
        redis.call('HSET', counters, 'sent on', decimal(number))
        redis.call('RPUSH', outbox, decimal(number) .. '\n' .. ARGV[at + 6])
      end
    elseif kind == 'dead' then
      redis.call('HSET', rows, id, row)
      redis.call('ZADD', dead_letters, number6(row, ENDED), id)
    elseif kind == 'release' then
      released[#released + 1], released[#released + 2] = id, row
    else
      local due = now + ms
      local head = redis.call('ZRANGE', schedule, 0, 0, 'WITHSCORES')[2]
      redis.call('HSET', rows, id, set(row, NEXT_ATTEMPT, be6(due)))
      redis.call('ZADD', schedule, decimal(due), id)
      if kind == 'park' then redis.call('SADD', parked, id) end
      if not head or due < tonumber(head) then wake(schedule_marker) end
    end
  elseif not held or sub(held, 1, NEXT_ATTEMPT - 1) ~= sub(row, 1, NEXT_ATTEMPT - 1) then
    stale[#stale + 1] = id
  end
end

for i = #freed, 1, -1 do offer_places(freed[i]) end
for i = 1, #released, 2 do return_to_queue(released[i], released[i + 1]) end
