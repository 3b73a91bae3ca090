-- Take back what rates were charged for messages that were handed out and not begun. `uncharged`: their ids, each with the
-- instant of its reservation in six bytes.

local ids = {}
for i = 1, #uncharged, 2 do ids[#ids + 1] = uncharged[i] end
local found = redis.call('HMGET', records, unpack(ids))
for i = 1, #ids do
  local field = rate_and_key(readable(found[i]))
  local held = field and redis.call('HGET', rates, field)
  local high, low = byte(held or '', 7, 8)
  local handed = low and high * 256 + low or 0
  for at = 3 + 6 * handed, 9, -6 do
    if sub(held, at, at + 5) == uncharged[2 * i] then  -- GUARD charges taken back
      handed = handed - 1
      redis.call('HSET', rates, field, sub(held, 1, 6) .. char(floor(handed / 256), handed % 256)
        .. sub(held, 9, at - 1) .. sub(held, at + 6))
      break
    end
  end
end
