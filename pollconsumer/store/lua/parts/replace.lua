-- NEEDS changed message_steps
-- For a message, alone in its call, that replaces the waiting one with its unique key.

local lifetime, longest, key = string.match(ARGV[7], '^(%d+)r(%d+):(.*)$')
local waiting = holder_of(key, now)
if longest ~= '0' and sub(ARGV[6], 1, 1) == '=' and tonumber(sub(ARGV[6], 2)) > now + longest then
  ARGV[6] = '=' .. decimal(now + longest)  -- GUARD the first one waits no longer, either
end
-- GUARD one that was accepted replaces nothing
if waiting and not (found_rows[1] or found_records[1]) and known == 0 then
  local before, state, record = message_of(waiting)
  if younger[1] == 1 or older[1] == 1 then  -- GUARD a repeated replacement
    replaced = waiting
  elseif record and (state == 'scheduled' or state == 'ready') then  -- GUARD one in flight is not replaced
    -- EXPECT ready ready_marker schedule_marker schedule ready_by_priority waiting_for_place counters checkpoints rates
    local new = sub(ARGV[4], 1, RECORD_SCHEDULED - 1) .. stamp .. sub(ARGV[4], RECORD_SCHEDULED)
    local due = ARGV[6] == '' and exactly or tonumber(sub(ARGV[6], 2))
    if sub(ARGV[6], 1, 1) == '+' then due = exactly + due end
    -- GUARD it waits no longer than it may
    if longest ~= '0' then due = math.min(due, number6(record, RECORD_SCHEDULED) + longest) end
    local at, from = expiry_at(record), expiry_at(new)
    -- GUARD the expiry moves with the due time
    if at and from then record = expiring(set(record, at, six(new, from)), math.max(now, due)) end
    local _, ends = readable(new)
    local row = nil
    row, record = with_payload(before, record, sub(new, ends + 1))
    if attempts_of(row) > 0 or has_flag(byte(row, FLAGS), CHECKPOINT) then  -- GUARD it begins anew
      drop_checkpoints({waiting})
      row = set(row, FLAGS, char(without_flag(without_flag(byte(row, FLAGS), BEGUN), CHECKPOINT)),
        ATTEMPTS, '\0\0\0' .. char(math.min(byte(row, GENERATION) + 1, 255)))
    end
    redis.call('HSET', records, waiting, record)
    -- One that waits for its rate keeps the instant that is booked for it, unless it is due later.
    local booked = has_flag(byte(row, FLAGS), BOOKED)  -- GUARD its instant is kept
    if due > exactly or state == 'scheduled' and not booked then  -- GUARD the due time is replaced
      wait_anew(waiting, before, set(row, DUE, be6(floor(due)), NEXT_ATTEMPT, NEVER), record, state, due, exactly)
    elseif redis.call('HEXISTS', rows, waiting) == 1 then
      redis.call('HSET', rows, waiting, row)
    end
    -- GUARD the key lasts anew
    redis.call('HSET', unique_keys, key, lifetime ~= '0' and string.format('%s\n%.0f', waiting, now + lifetime) or waiting)
    redis.call('HSETNX', counters, 'id memory began', now)
    redis.call('SADD', id_memory, ids[1])  -- GUARD a replacement is remembered
    replaced = waiting
  end
end
