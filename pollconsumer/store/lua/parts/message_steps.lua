-- NEEDS numbers
-- Fields of checkpoints. The id of a message: its checkpoint. The id and a line feed: the number of its steps, a space,
-- the name of the signal for which it waits. With a number from 1 after that: a step. With 0: the signals sent to it,
-- each as a line feed, name, tab, instant, space, value.

local MOST_STEPS = 1000  -- the same in core/messages/message_steps.py

-- Delete checkpoints, steps and signals of messages.
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

-- The name of the signal for which a message waits; the signals sent to it; the field with the number of its steps.
local function awaited_and_sent(id)
  local head, sent = unpack(redis.call('HMGET', checkpoints, id .. '\n', id .. '\n0'))
  return string.match(head or '', '^%d+ (.+)$'), sent or '', head
end
