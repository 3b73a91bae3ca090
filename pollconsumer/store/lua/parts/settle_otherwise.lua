-- Settle messages that are not completed, in a step.

local keyed, has_ended = {}, {}  -- those with a key: ids; by id, whether the unique key is free, too

for at = others, #ARGV, 7 do
  local id, row, kind, ms, text = ARGV[at], ARGV[at + 2], ARGV[at + 3], tonumber(ARGV[at + 4]), ARGV[at + 5]
  local held = redis.call('HGET', rows, id)
  if held == ARGV[at + 1] then  -- GUARD row compare, settled otherwise
    settled = true
    redis.call('ZREM', in_flight, id)  -- GUARD settled leaves flight
    if text ~= '' then redis.call('HSET', errors, id, text) end
    local stopped = was_to_stop(id) or kind == 'cancel'
    if not stopped and (kind == 'release' or kind == 'park' or kind == 'expire') then
      uncharged[#uncharged + 1], uncharged[#uncharged + 2] = id, six(held, RESERVED)
    end
    if byte(row, FLAGS) > 0 and (stopped or kind ~= 'release') then
      -- GUARD expired frees its keys
      keyed[#keyed + 1], has_ended[id] = id, stopped or kind == 'dead' or kind == 'expire'
    end
    count_settled(held, stopped and 'cancel' or kind, 1, tonumber(ARGV[at + 6]))
    if stopped then
      cancel_stopped(id, row, now)
      if has_flag(byte(row, FLAGS), LARGE) then dropped[#dropped + 1] = id end
    elseif kind == 'expire' then
      redis.call('RPUSH', expired, id)
      redis.call('HSET', rows, id, row)
      if has_flag(byte(row, FLAGS), LARGE) then dropped[#dropped + 1] = id end  -- GUARD expired drops a large record
      if has_flag(byte(row, FLAGS), CHECKPOINT) then redis.call('HDEL', checkpoints, id) end
    elseif kind == 'dead' then
      redis.call('HSET', rows, id, row)
      redis.call('ZADD', dead_letters, number6(row, ENDED), id)
    elseif kind == 'release' then
      released[#released + 1], released[#released + 2] = id, row
    else
      local due = now + ms
      local head = redis.call('ZRANGE', schedule, 0, 0, 'WITHSCORES')[2]
      redis.call('HSET', rows, id, set(row, NEXT_ATTEMPT, be6(due)))
      redis.call('ZADD', schedule, due_score(due), id)
      if has_flag(byte(row, FLAGS), PARKED) then redis.call('SADD', parked, id) end  -- GUARD set aside is not parked
      if not head or due * 1000 < tonumber(head) then wake(schedule_marker) end
    end
  -- GUARD a repeated failure is not stale
  elseif not held or sub(held, 1, NEXT_ATTEMPT - 1) ~= sub(row, 1, NEXT_ATTEMPT - 1) then
    stale[#stale + 1] = id
  end
end
local found = #keyed > 0 and redis.call('HMGET', records, unpack(keyed))
for i = 1, #keyed do
  local record = readable(found[i])
  if record and has_ended[keyed[i]] and has_flag(byte(record, RECORD_FLAGS), UNIQUE) then
    holders[#holders + 1], unique[#unique + 1] = keyed[i], unique_key(record)
  end
  local _, key = concurrency(record)
  if key and not taken[key] then counted[#counted + 1] = key end
  if key then taken[key] = (taken[key] or 0) - 1 end  -- GUARD places given back
end
