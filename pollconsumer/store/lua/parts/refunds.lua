-- NEEDS rows

-- Take back what its rate was charged for a message that was handed out and not begun, at the instant of its reservation.
local function take_back_charge(id, reserved)
  local field = rate_and_key(readable(redis.call('HGET', records, id)))
  local held = field and redis.call('HGET', rates, field)
  local high, low = byte(held or '', 7, 8)
  local handed = low and high * 256 + low or 0
  for at = 3 + 6 * handed, 9, -6 do
    if sub(held, at, at + 5) == reserved then  -- GUARD charges taken back
      handed = handed - 1
      redis.call('HSET', rates, field, sub(held, 1, 6) .. char(floor(handed / 256), handed % 256)
        .. sub(held, 9, at - 1) .. sub(held, at + 6))
      break
    end
  end
end
