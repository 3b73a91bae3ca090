-- The first part of a step: settle messages. ARGV are those of `step.lua`.

-- Of completions: unique keys that are freed, and the ids of their holders; ids whose large records are dropped.
local holders, unique, dropped = {}, {}, {}
local ended_heads = {}  -- order keys, each after the id of its head

-- Hot path: completions. Keys, results and follow-ups cost time only for the messages that have them.
if completions > 0 then
  local argv, ids = ARGV, {unpack(ARGV, 10, 9 + completions)}
  local found_rows = redis.call('HMGET', rows, unpack(ids))
  local new_rows, gone, refused, count, held, at, i = {}, {}, {}, 0, 0, 10 + completions, 0
  while at < extras do
    local size, row, new_row = tonumber(argv[at]), argv[at + 1], argv[at + 2]
    at = at + 3
    local before, flags = count, byte(new_row, FLAGS)
    local key_at, place_at, large, checkpoint = nil, nil, nil, nil
    if flags > 0 then
      if has_flag(flags, UNIQUE) then key_at, at = at - 1, at + size end
      if has_flag(flags, CONCURRENCY) then place_at, at = at - 1, at + size end
      large, checkpoint = has_flag(flags, LARGE), has_flag(flags, CHECKPOINT)
    end
    for k = 1, size do
      i = i + 1
      local id = ids[i]
      if found_rows[i] == row then  -- GUARD row compare, completed
        count = count + 1
        new_rows[2 * count - 1], new_rows[2 * count] = id, new_row
        gone[count] = id
        if flags > 0 then
          if key_at then
            held = held + 1
            holders[held], unique[held] = id, argv[key_at + k]
          end
          if place_at then
            local key = argv[place_at + k]
            local zero = find(key, '\0', 1, true)  -- an order key follows
            if zero then
              ended_heads[#ended_heads + 1], ended_heads[#ended_heads + 2] = id, sub(key, zero + 1)
              key = sub(key, 1, zero - 1)
            end
            if key ~= '' then count_place(key, -1) end  -- GUARD places freed
          end
          if large then dropped[#dropped + 1] = id end
          if checkpoint then drop_checkpoints({id}) end
        end
      else
        refused[i] = true
        if found_rows[i] ~= new_row then stale[#stale + 1] = id end  -- GUARD a repeated completion is not stale
      end
    end
    if count > before then
      -- GUARD what is stale is not counted
      count_settled(row, 'complete', count - before, number6(new_row, ENDED) - number6(new_row, STARTED))
    end
  end
  if count > 0 then
    redis.call('RPUSH', completed, unpack(gone))
    redis.call('HSET', rows, unpack(new_rows))
    redis.call('ZREM', in_flight, unpack(gone))  -- GUARD completed leaves flight
    for k = #ended_heads, 1, -2 do pass_on(ended_heads[k], ended_heads[k - 1]) end  -- GUARD a completed head passes on
    settled = true
  end
  if others > extras then
    -- What completions leave: results, ends of members of a batch, follow-ups, and which occurrence of its recurrence
    -- was the last to be completed.
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
        local counted_ids = {}
        for i = first, first + tonumber(argv[at + 5]) - 1 do
          if not refused[i] then counted_ids[#counted_ids + 1] = ids[i] end  -- GUARD ends of what is stale
        end
        -- Before the follow-ups, since some of these may be members that are added to the batch.
        if #counted_ids > 0 then report_end(argv[at + 6] .. '"as":"c","ids":"' .. table.concat(counted_ids, ' ') .. '"', now) end
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
  end
end

-- Messages that are settled and not completed.
local released = {}
if others <= #ARGV then
  local rated = nil  -- 1 if any rate has charges

  -- The part of a row that only a settlement changes, and that stays when the message is ready again.
  local function settled_as(row)
    return sub(row, 1, ENQUEUED - 1) .. six(row, FAILED)
  end

  for at = others, #ARGV, 7 do
    local id, row, kind, ms, text = ARGV[at], ARGV[at + 2], ARGV[at + 3], tonumber(ARGV[at + 4]), ARGV[at + 5]
    local held = redis.call('HGET', rows, id)
    if held == ARGV[at + 1] then  -- GUARD row compare, settled otherwise
      settled = true
      redis.call('ZREM', in_flight, id)  -- GUARD settled leaves flight
      if text ~= '' then redis.call('HSET', errors, id, text) end
      if redis.call('HDEL', stops, id) == 1 then kind = 'cancel' end  -- it was to stop
      if kind == 'release' and ms == 0 or kind == 'park' or kind == 'expire' then  -- GUARD charges of what had begun
        rated = rated or redis.call('EXISTS', rates)
        if rated == 1 then take_back_charge(id, six(held, RESERVED)) end  -- GUARD charges taken back
      end
      local record = kind ~= 'release' and keyed_record(id, row)
      local _, key = concurrency(record)
      if key then count_place(key, -1) end  -- GUARD places freed, settled otherwise
      count_settled(held, kind, 1, tonumber(ARGV[at + 6]))
      if kind == 'cancel' then
        redis.call('RPUSH', cancelled, id)
        ended(id, row, record, 'x', now)
      elseif kind == 'expire' then
        redis.call('RPUSH', expired, id)
        ended(id, row, record, 'e', now)
        if has_flag(byte(row, FLAGS), CHECKPOINT) then drop_checkpoints({id}) end  -- GUARD expired drops its checkpoint
      elseif kind == 'dead' then
        end_as_dead(id, row, record, now, nil, ms > 0)
      elseif kind == 'release' then
        released[#released + 1], released[#released + 2] = id, row
      else
        if kind == 'asleep' then
          local awaited, sent = awaited_and_sent(id)
          -- GUARD a signal that came before the sleep
          if awaited and find(sent, '\n' .. awaited .. '\t', 1, true) then ms = 0 end
        end
        local due = now + ms
        redis.call('HSET', rows, id, set(row, NEXT_ATTEMPT, be6(due)))
        put_in_schedule(id, due)
        if has_flag(byte(row, FLAGS), PARKED) then redis.call('SADD', parked, id) end  -- GUARD deferred is not parked
      end
    -- GUARD a repeated failure is not stale
    elseif not held or settled_as(held) ~= settled_as(row) then
      stale[#stale + 1] = id
    end
  end
end
-- What settled messages held: unique keys, places, large records; and those released return to their queue.
if #unique + #counted + #dropped + #released > 0 then
  if #unique > 0 then free_keys(holders, unique) end  -- GUARD unique key freed at the end
  -- Counts of keys are written after the reservation, which may take the places again, unless they must be offered now.
  if #counted > 0 and (#released > 0 or redis.call('ZCARD', waiting_for_place) > 0) then
    count_places()  -- GUARD places freed for those in line
    write_places()  -- GUARD places freed for those in line
    for i = #counted, 1, -1 do offer_places(counted[i]) end
    counted, stored, known_keys, taken = {}, {}, 0, {}
  end
  if #dropped > 0 then redis.call('HDEL', records, unpack(dropped)) end
  for i = 1, #released, 2 do return_to_queue(released[i], released[i + 1]) end
end
