-- A run of ids lists their results until these are forgotten. If a result was dropped before, the field of its id and a
-- line feed counts in how many runs it is still listed. So `trim.lua` does not take it for the result of a later
-- message with the same id.

-- Of a forgotten message, for another one with its id.
local function drop_result(id)
  if redis.call('HDEL', results, id) == 0 then return end
  local left = id .. '\n'
  -- GUARD runs in which a dropped result is left
  redis.call('HSET', results, left, (tonumber(redis.call('HGET', results, left) or 0) or 0) + 1)
end
