-- Recurrences that have an occurrence to enqueue.
-- KEYS n nz
-- ARGV most recurrences
-- Returns now, and for each: name, instant that is due, definition as JSON

local now, due = now_ms(), {}
local entries = redis.call('ZRANGEBYSCORE', nz, '-inf', now, 'WITHSCORES', 'LIMIT', 0, ARGV[1])
for i = 1, #entries, 2 do
  local definition = redis.call('HGET', n, entries[i])
  due[#due + 1] = entries[i]
  due[#due + 1] = entries[i + 1]
  due[#due + 1] = definition and string.match(definition, '\n(.*)$') or ''
end
return {now, due}
