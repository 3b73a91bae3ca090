-- Return dead letters to their queue: the same messages, in a new generation, with all their attempts before them.
-- KEYS b m r z x u c k
-- ARGV ids
-- Returns ids returned. Left where they are: what is no dead letter, what has lost its record, and what has a unique
--   key that another message holds by now

local now, returned = now_ms(), {}
redis.call('LLEN', r)
redis.call('ZCARD', z)
redis.call('LLEN', k)
for _, id in ipairs(ARGV) do
  local record = redis.call('ZSCORE', x, id) and readable(redis.call('HGET', b, id))
  local key = record and unique_key(record) or ''
  local holder = key ~= '' and holder_of(key, now)
  if record and (not holder or holder == id) then
    if key ~= '' then redis.call('HSET', u, key, id) end
    local row = well_formed(redis.call('HGET', m, id)) or fresh_row(record)
    local flags = byte(row, 1)
    if has_flag(flags, BEGUN) then flags = flags - BEGUN end
    redis.call('ZREM', x, id)
    redis.call('HSET', m, id, char(flags) .. '\0' .. sub(row, 3, 4) .. '\0\0\0'
      .. char(math.min(byte(row, 8) + 1, 255)) .. sub(row, 9, 14) .. NEVER .. NEVER .. NEVER .. sub(row, 33, 44)
      .. be6(now) .. sub(row, 51, 56) .. NEVER .. sub(row, 63))
    make_ready(id, priority_of(row), now)
    returned[#returned + 1] = id
  end
end
if #returned > 0 then wake(k) end
return returned
