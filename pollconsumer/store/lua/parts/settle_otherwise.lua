-- Settle messages that are not completed, in a step.

local rated = nil  -- 1 if any rate has charges

-- What a settlement has made of a row, whether the message is ready again by now or not.
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
    if was_to_stop(id) then kind = 'cancel' end
    if kind == 'release' or kind == 'park' or kind == 'expire' then
      rated = rated or redis.call('EXISTS', rates)
      if rated == 1 then take_back_charge(id, six(held, RESERVED)) end  -- GUARD charges taken back
    end
    local record = kind ~= 'release' and keyed_record(id, row)
    local _, key = concurrency(record)
    if key then
      if not taken[key] then counted[#counted + 1] = key end
      taken[key] = (taken[key] or 0) - 1  -- GUARD places given back
    end
    count_settled(held, kind, 1, tonumber(ARGV[at + 6]))
    if kind == 'cancel' then
      end_as_cancelled(id, row, record, now)
    elseif kind == 'expire' then
      end_as_expired(id, row, record, now)
      if has_flag(byte(row, FLAGS), CHECKPOINT) then drop_checkpoints({id}) end  -- GUARD expired drops its checkpoint
    elseif kind == 'dead' then
      end_as_dead(id, row, record, now)
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
      if has_flag(byte(row, FLAGS), PARKED) then redis.call('SADD', parked, id) end  -- GUARD set aside is not parked
    end
  -- GUARD a repeated failure is not stale
  elseif not held or settled_as(held) ~= settled_as(row) then
    stale[#stale + 1] = id
  end
end
