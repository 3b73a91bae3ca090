-- In a step, what to do with a popped message that has a key or a rate, or that cannot be handed out.

local duplicates, waiting_rows, entries, number = 0, {}, {}, nil

local function make_dead(id, row, record, problem)
  row = row or record and fresh_row(record) or '\0\0\128\0\0\0\0\0' .. string.rep(NEVER, 9)
  if has_flag(byte(row, FLAGS), PARKED) then redis.call('SREM', parked, id) end
  count_settled(row, 'dead', 1)
  problem = 'malformed: ' .. problem
  row = end_as_dead(id, row, record, now, problem)
  local at = #malformed
  malformed[at + 1], malformed[at + 2], malformed[at + 3] = id, row, problem
end

look_at = function(i, id, row, record, ends, handler_begins)
  -- GUARD state of what is popped; id popped twice
  if seen[id] or row and (state_of(row) ~= 'ready' or has_flag(byte(row, FLAGS), WAITING)) then
    duplicates, passed_over = duplicates + 1, true
  elseif newer(found_records[i]) then  -- GUARD records of a newer version
    if row and in_line(row) then duplicates = duplicates + 1 end
    put_in_schedule(id, now + ASIDE_MS)  -- unchanged
    newer_ones, passed_over = newer_ones + 1, true
  elseif found_rows[i] and not row then
    make_dead(id, nil, record, 'its row cannot be read')
    passed_over = true
  elseif not record then
    if not found_rows[i] and not found_records[i] and (tonumber(redis.call('HGET', counters, DUPLICATES) or 0) or 0) > duplicates then
      duplicates = duplicates + 1
    else
      if row and in_line(row) then duplicates = duplicates + 1 end
      make_dead(id, row, nil, found_records[i] and 'its record cannot be read' or 'its record is missing')
    end
    passed_over = true
  else
    local has_place = true
    if row and has_flag(byte(row, FLAGS), PARKED) then
      redis.call('SREM', parked, id)
      row = set(row, FLAGS, char(byte(row, FLAGS) - PARKED))
    end
    local key = keys_of and keys_of[i]
    local was_in_line = key and row and in_line(row)
    if was_in_line then duplicates = duplicates + 1 end
    local rated, rate_allows = has_flag(byte(record, RECORD_FLAGS), RATE), true
    if rated then
      if not rate then
-- PART rates
      end
      rate_allows = not rate.waits(id, row or fresh_row(record), record)
    end
    if not rate_allows then
      has_place = false
      if was_in_line then
        redis.call('ZREM', waiting_for_place, line_entry(id, row, key))
        given_up[#given_up + 1] = key
      end
    elseif key then
      has_place = taken[key] < concurrency(record)  -- GUARD places of a concurrency key
      if not has_place then
        number = (number or FIRST_NUMBER + count_up('stood in line', #ids) - #ids) + 1
        waiting_rows[#waiting_rows + 1] = id
        entries[#entries + 1] = 0
        waiting_rows[#waiting_rows + 1], entries[#entries + 1] = waiting_row(id, row or fresh_row(record), key, number)
      else
        taken[key] = taken[key] + 1
        if was_in_line then redis.call('ZREM', waiting_for_place, line_entry(id, row, key)) end
      end
    end
    if not has_place then
      passed_over = true
    else
      if rated then row = rate.charge(row or fresh_row(record), record) end
      hand_out(id, row and later_row(row) or first_row(record, ends, handler_begins), record)
    end
  end
end

put_aside = function()
  if #waiting_rows > 0 then
    redis.call('HSET', rows, unpack(waiting_rows))
    redis.call('ZADD', waiting_for_place, unpack(entries))
  end
  -- A repeated id that another program pushed was never counted.
  local counted = duplicates > 0 and tonumber(redis.call('HGET', counters, DUPLICATES) or 0) or 0
  if counted > 0 then count_up(DUPLICATES, -math.min(duplicates, counted)) end
end
