-- Redis does not roll back a failed script. So a script first reads the keys that it writes, by a command of their type: a
-- key of another type ends it with WRONGTYPE before anything has changed.

local function expect(command, ...)
  for i = 1, select('#', ...) do redis.call(command, (select(i, ...))) end
end
