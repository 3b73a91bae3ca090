-- Read each of the keys by a command of its type. A server does not roll back a failed script, so a key of another type must
-- end it before anything has changed.
local function expect(command, ...)
  for i = 1, select('#', ...) do redis.call(command, (select(i, ...))) end
end
