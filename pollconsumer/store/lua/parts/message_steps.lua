-- NEEDS numbers
-- Fields of checkpoints. A message's id: its checkpoint. The id and a line feed: the number of its steps, a space, and
-- the name of the signal that it awaits. The same followed by a number from 1: a step. Followed by 0: the signals sent
-- to it, each a line feed, its name, a tab, its instant, a space, its value.

local MOST_STEPS = 1000  -- the same in core/messages/message_steps.py

-- Forget checkpoints, steps and signals of messages.
local function drop_checkpoints(ids)
  if redis.call('HLEN', checkpoints) == 0 then return end
  local heads = {}
  for i = 1, #ids do heads[i] = ids[i] .. '\n' end
  local found = redis.call('HMGET', checkpoints, unpack(heads))
  redis.call('HDEL', checkpoints, unpack(ids))
  for i = 1, #ids do
    local count = found[i] and math.min(MOST_STEPS, tonumber(string.match(found[i], '^%d+')) or 0) or -1
    for n = 0, count do redis.call('HDEL', checkpoints, heads[i] .. n) end  -- GUARD steps and signals are dropped
    if found[i] then redis.call('HDEL', checkpoints, heads[i]) end
  end
end

-- The name of the signal that a message awaits, the signals sent to it, and the field with the number of its steps.
local function awaited_and_sent(id)
  local head, sent = unpack(redis.call('HMGET', checkpoints, id .. '\n', id .. '\n0'))
  return string.match(head or '', '^%d+ (.+)$'), sent or '', head
end
