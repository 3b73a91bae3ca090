-- NEEDS numbers
-- The outbox: numbered entries for other queues. Numbers rise, even if a failing server has lost the last entries.
local function send_on(content, now)
  -- GUARD numbers of an outbox rise
  local number = math.max((tonumber(redis.call('HGET', counters, 'sent on') or 0) or 0) + 1, now * 1000)
  redis.call('HSET', counters, 'sent on', decimal(number))
  redis.call('RPUSH', outbox, decimal(number) .. '\n' .. content)
end

-- Report in the outbox that messages with a continuation have ended, for a launch to send. Earlier versions do not
-- touch such an entry: it looks like a message with an unknown field.
local function report_end(what, now)
  send_on('[{"id":"","queue":"","handler":"","payload":"","priority":0,"due":0,"delay":0,"key":"","key_lifetime":0,'
    .. '"concurrency_key":"","concurrency_limit":0,"digest":"","headers":0,"timeout":0,"max_attempts":0,"retry":0,'
    .. '"lifetime":0,"ping":0,"rate_key":"","rate":"","ended":{' .. what .. '}}]', now)
end
