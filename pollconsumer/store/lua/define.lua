-- Make the recurrences of one owner in a queue those that are given: new and changed ones begin anew, others go on.
-- KEYS n nz nc ks
-- ARGV owner; for each: name, definition as JSON, first instant in epoch ms ('' for none)
-- Returns names removed

local named = {}
for i = 2, #ARGV, 3 do
  local name, definition = ARGV[i], ARGV[1] .. '\n' .. ARGV[i + 1]
  named[name] = true
  if redis.call('HGET', n, name) ~= definition then
    redis.call('HSET', n, name, definition)
    if ARGV[i + 2] ~= '' and redis.call('HEXISTS', nc, name .. ':paused') == 0 then
      redis.call('ZADD', nz, ARGV[i + 2], name)
      wake(ks)
    else
      redis.call('ZREM', nz, name)
    end
  end
end
local removed = {}
local held = redis.call('HGETALL', n)
for i = 1, #held, 2 do
  local name, owner = held[i], string.match(held[i + 1], '^[^\n]*')
  if owner == ARGV[1] and not named[name] then
    redis.call('HDEL', n, name)
    redis.call('ZREM', nz, name)
    redis.call('HDEL', nc, name .. ':skipped', name .. ':enqueued', name .. ':last', name .. ':paused')
    removed[#removed + 1] = name
  end
end
return removed
