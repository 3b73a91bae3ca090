-- NEEDS numbers
-- The outbox: entries for other queues, each after its number. Numbers rise, even if a failing server lost the last ones.
local function send_on(content, now)
  -- GUARD numbers of an outbox rise
  local number = math.max((tonumber(redis.call('HGET', counters, 'sent on') or 0) or 0) + 1, now * 1000)
  redis.call('HSET', counters, 'sent on', decimal(number))
  redis.call('RPUSH', outbox, decimal(number) .. '\n' .. content)
end
