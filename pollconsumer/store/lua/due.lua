-- Recurrences that have an occurrence to enqueue.
-- KEYS recurrences next_instants
-- NEEDS numbers
-- ARGV most recurrences
-- Returns now, and for each: name, due instant, definition as JSON ('' for none)

local now, due = now_ms(), {}
local entries = redis.call('ZRANGEBYSCORE', next_instants, '-inf', now, 'WITHSCORES', 'LIMIT', 0, ARGV[1])
for i = 1, #entries, 2 do
  due[#due + 1] = entries[i]
  due[#due + 1] = entries[i + 1]
  due[#due + 1] = redis.call('HGET', recurrences, entries[i]) or ''
end
return {now, due}
