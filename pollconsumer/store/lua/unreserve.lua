-- Give back, uncharged, what a launch has reserved without knowing it: the reply to its step was lost.
-- KEYS b m r z f t k g w
-- ARGV lineage, fence, fence in 6 bytes, ids that the launch knows of
-- Returns messages given back
-- Refusals: FENCED
-- What was begun for the only time stays reserved: recovering makes a dead letter of it.

if redis.call('HGET', t, ARGV[1]) ~= ARGV[2] then return redis.error_reply('FENCED ' .. ARGV[1]) end
redis.call('LLEN', r)
redis.call('ZCARD', z)
redis.call('LLEN', k)
local known = {}
for i = 4, #ARGV do known[ARGV[i]] = true end
local ids = redis.call('ZRANGE', f, 0, -1)
local back = 0
for i = #ids, 1, -1 do
  local id = ids[i]
  local row = not known[id] and redis.call('HGET', m, id)
  if row and sub(row, 9, 14) == ARGV[3] and not has_flag(byte(row, 1), BEGUN) then
    local high, low = byte(row, 5, 6)
    local attempts = math.max(high * 256 + low - 1, 0)
    redis.call('ZREM', f, id)
    local record = has_flag(byte(row, 1), CONCURRENCY) and readable(redis.call('HGET', b, id))
    if record then
      local _, key = concurrency(record)
      leave_place(key, back, m, r, z, g, w)
    end
    redis.call('HSET', m, id, sub(row, 1, 4) .. char(floor(attempts / 256), attempts % 256) .. sub(row, 7, 14)
      .. NEVER .. NEVER .. sub(row, 27))
    put_back(id, row, back, r, z)
    back = back + 1
  end
end
if back > 0 then wake(k) end
return back
