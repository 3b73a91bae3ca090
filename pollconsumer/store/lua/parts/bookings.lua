-- NEEDS rows

local MOST_SEARCHED = 100

-- For a message that is about to leave the schedule, or has left it and is ready, and is not handed out: delete the
-- instant that it has booked from its rate's ledger, whose form `rates.lua` describes. A full ledger has only the last
-- bookings. Then the latest one that it lacks is added, so that a new message still goes behind all that wait; if it
-- cannot be found in the schedule, nothing is deleted.
local function take_back_booking(id, row, record)
  local field = has_flag(byte(row, FLAGS), BOOKED) and rate_and_key(record)
  local held = field and redis.call('HGET', rates, field)
  local high, low = byte(held or '', 7, 8)
  if not low then return end
  local from, score = 9 + 6 * (high * 256 + low), redis.call('ZSCORE', schedule, id)
  local first, at = sub(held, from, from + 5), from
  if score then
    local instant = be6(floor(score / 1000))
    at = #held - 5
    while at >= from and sub(held, at, at + 5) ~= instant do at = at - 6 end
  elseif first > be6(now_ms()) then
    return
  end
  if at < from or first == '' then return end
  local booked = sub(held, from, at - 1) .. sub(held, at + 6)
  high, low = byte(field, 1, 2)
  if #booked + 6 >= 12 * (high * 256 + low) then
    -- Those booked for the same instant as the first one may be in the ledger, or not.
    local same, lacking = 0, nil
    while sub(booked, 6 * same + 1, 6 * same + 6) == first do same = same + 1 end
    local ids = redis.call('ZRANGE', schedule, due_score(number6(first, 1)), due_score(now_ms()), 'BYSCORE', 'REV',
      'LIMIT', 0, MOST_SEARCHED)
    for i = 1, #ids do
      local other = ids[i] ~= id and well_formed(redis.call('HGET', rows, ids[i]))
      if other and has_flag(byte(other, FLAGS), BOOKED)
        and rate_and_key(readable(redis.call('HGET', records, ids[i]))) == field then
        if same == 0 then
          lacking = be6(floor(redis.call('ZSCORE', schedule, ids[i]) / 1000))
          break
        end
        same = same - 1
      end
    end
    if not lacking and #ids == MOST_SEARCHED then return end  -- GUARD those behind which a new one goes
    booked = (lacking or '') .. booked
  end
  redis.call('HSET', rates, field, sub(held, 1, from - 1) .. booked)  -- GUARD bookings taken back
end
