-- A run of ids lists their results until these are forgotten. Where one was dropped before, its id and a line feed count in
-- how many runs it is left: `trim.lua` does not take these for that of a later message with the same id.

-- Of a forgotten message, for another one with its id.
local function drop_result(id)
  if redis.call('HDEL', results, id) == 0 then return end
  local left = id .. '\n'
  -- GUARD runs in which a dropped result is left
  redis.call('HSET', results, left, (tonumber(redis.call('HGET', results, left) or 0) or 0) + 1)
end
