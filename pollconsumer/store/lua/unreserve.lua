-- Give back, uncharged, what a launch has reserved without knowing it: the reply to its step was lost.
-- KEYS b m r z f c t k g w
-- ARGV lineage, fence, fence in 6 bytes, ids that the launch knows of
-- Returns messages given back
-- Refusals: FENCED
-- What was begun for the only time stays reserved: recovering makes a dead letter of it.

if redis.call('HGET', t, ARGV[1]) ~= ARGV[2] then return redis.error_reply('FENCED ' .. ARGV[1]) end
redis.call('LLEN', r)
redis.call('ZCARD', z)
redis.call('LLEN', k)
redis.call('HLEN', c)
redis.call('HLEN', g)
redis.call('ZCARD', w)
local known = {}
for i = 4, #ARGV do known[ARGV[i]] = true end
local ids = redis.call('ZRANGE', f, 0, -1)
local given_back = 0
for i = #ids, 1, -1 do
  local id = ids[i]
  local row = not known[id] and redis.call('HGET', m, id)
  if row and sub(row, 9, 14) == ARGV[3] and not has_flag(byte(row, 1), BEGUN) then
    local high, low = byte(row, 5, 6)
    local attempts = math.max(high * 256 + low - 1, 0)
    redis.call('ZREM', f, id)
    come_back(id, sub(row, 1, 4) .. char(floor(attempts / 256), attempts % 256) .. sub(row, 7, 14)
      .. NEVER .. NEVER .. sub(row, 27))
    given_back = given_back + 1
  end
end
if given_back > 0 then wake(k) end
return given_back
