-- Remove a recurrence, whoever defines it.
-- KEYS recurrences next_instants recurrence_counters recurrence_owners recurrences_replaced recurrences_unreadable
-- KEYS recurrences_ended answered
-- NEEDS recurrences once
-- ARGV name
-- Returns its next instant, '' for none; nil if there was no such recurrence

local due = next_instant(ARGV[1])
local there = redis.call('HEXISTS', recurrences, ARGV[1]) == 1 or redis.call('ZSCORE', next_instants, ARGV[1])
  or redis.call('ZSCORE', recurrences_unreadable, ARGV[1])
forget_recurrence(ARGV[1])
redis.call('HDEL', recurrence_owners, ARGV[1])
redis.call('HDEL', recurrence_counters, ARGV[1] .. ':paused')
local kept = redis.call('HGETALL', recurrences_replaced)
for i = 1, #kept, 2 do
  -- GUARD others whose names begin alike
  if sub(kept[i], 1, #ARGV[1] + 1) == ARGV[1] .. '\n' then redis.call('HDEL', recurrences_replaced, kept[i]) end
end
if not there then return nil end  -- GUARD removed by another
return due and decimal(due) or ''
