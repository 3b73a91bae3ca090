-- Redis does not undo what a script wrote before it failed. So the keys that a script writes are read before its first
-- write, by a command of their type: a key of another type ends the script with WRONGTYPE while nothing has changed.

local function expect(command, ...)
  for i = 1, select('#', ...) do redis.call(command, (select(i, ...))) end
end
