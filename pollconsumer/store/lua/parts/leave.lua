-- What completions leave: results, ends of members of a batch, follow-ups, and which occurrence of its recurrence was the
-- last to be completed.

local kept, size, runs, at = {}, 0, {}, extras
while at < others do
  local first, count, follow_ups = tonumber(argv[at]), tonumber(argv[at + 1]), argv[at + 3]
  local shift, before = at + 7 - first, size
  for i = first, first + count - 1 do
    if not refused[i] then  -- GUARD results of what is stale
      kept[size + 1], kept[size + 2] = ids[i], argv[shift + i]
      size = size + 2
    end
  end
  local run, from, to = ids, first, first + count - 1
  if size < before + 2 * count then  -- without those refused  -- GUARD run of what is stale
    run, from, to = {}, 1, (size - before) / 2
    for k = 1, to do run[k] = kept[before + 2 * k - 1] end
  end
  if from <= to then
    -- GUARD runs differ
    runs[#runs + 1], runs[#runs + 2] = decimal(now + argv[at + 2]), be6(now) .. table.concat(run, '\n', from, to)
  end
  if argv[at + 6] ~= '' then
    local told = {}
    for i = first, first + tonumber(argv[at + 5]) - 1 do
      if not refused[i] then told[#told + 1] = ids[i] end  -- GUARD ends of what is stale
    end
    -- Before the follow-ups, of which some may be members that are added to the batch.
    if #told > 0 then tell(argv[at + 6] .. '"as":"c","ids":"' .. table.concat(told, ' ') .. '"', now) end
  end
  if follow_ups ~= '' and not refused[first] then send_on(follow_ups, now) end
  -- Unless its recurrence was removed meanwhile.
  local instants, name = sub(argv[at + 4], 1, 12), sub(argv[at + 4], 13)
  -- GUARD previous of one that was removed
  if instants ~= '' and not refused[first] and redis.call('HEXISTS', recurrence_counters, name .. ':last') == 1 then
    local held = redis.call('HGET', recurrence_counters, name .. ':previous')
    if not held or sub(held, 1, 6) <= sub(instants, 1, 6) then  -- GUARD previous by instant
      redis.call('HSET', recurrence_counters, name .. ':previous', instants .. (from <= to and kept[size] or ''))
    end
  end
  at = at + 7 + count
end
if size > 0 then
  redis.call('HSET', results, unpack(kept))
  redis.call('ZADD', result_runs, unpack(runs))
end
