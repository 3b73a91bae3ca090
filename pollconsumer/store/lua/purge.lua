-- Forget dead letters for good.
-- KEYS b m x e y
-- ARGV ids
-- Returns ids forgotten

local forgotten = {}
for _, id in ipairs(ARGV) do
  if redis.call('ZREM', x, id) == 1 then
    redis.call('HDEL', b, id)
    redis.call('HDEL', m, id)
    redis.call('HDEL', e, id)
    redis.call('HDEL', y, id)
    forgotten[#forgotten + 1] = id
  end
end
return forgotten
