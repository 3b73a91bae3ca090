-- What completions leave: results, follow-ups, and which occurrence of its recurrence was the last to be completed.

local kept, size, runs, at = {}, 0, {}, extras
while at < others do
  local first, count, follow_ups = tonumber(argv[at]), tonumber(argv[at + 1]), argv[at + 3]
  local shift, run, length = at + 5 - first, {}, 0
  for i = first, first + count - 1 do
    if not refused[i] then
      local id = ids[i]
      length, size = length + 1, size + 2
      run[length], kept[size - 1], kept[size] = id, id, argv[shift + i]
    end
  end
  if length > 0 then
    runs[#runs + 1], runs[#runs + 2] = decimal(now + argv[at + 2]), be6(now) .. table.concat(run, '\n')
  end
  if follow_ups ~= '' and not refused[first] then
    -- Numbers rise, even if a failing server lost the last ones.
    local number = math.max(tonumber(redis.call('HGET', counters, 'sent on') or 0) + 1, now * 1000)
    redis.call('HSET', counters, 'sent on', decimal(number))
    redis.call('RPUSH', outbox, decimal(number) .. '\n' .. follow_ups)
  end
  -- Unless its recurrence was removed meanwhile.
  local instants, name = sub(argv[at + 4], 1, 12), sub(argv[at + 4], 13)
  if instants ~= '' and not refused[first] and redis.call('HEXISTS', recurrence_counters, name .. ':last') == 1 then
    local held = redis.call('HGET', recurrence_counters, name .. ':previous')
    if not held or sub(held, 1, 6) <= sub(instants, 1, 6) then
      redis.call('HSET', recurrence_counters, name .. ':previous', instants .. (run[1] and kept[size] or ''))
    end
  end
  at = at + 5 + count
end
if size > 0 then
  redis.call('HSET', results, unpack(kept))
  redis.call('ZADD', result_runs, unpack(runs))
end
