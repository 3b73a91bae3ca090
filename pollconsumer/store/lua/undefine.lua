-- Remove a recurrence, regardless of its owners.
-- KEYS recurrences next_instants recurrence_counters recurrence_owners recurrences_replaced recurrences_unreadable
-- NEEDS numbers
-- ARGV name
-- Returns 1

redis.call('HDEL', recurrences, ARGV[1])
redis.call('ZREM', next_instants, ARGV[1])
redis.call('ZREM', recurrences_unreadable, ARGV[1])
redis.call('HDEL', recurrence_owners, ARGV[1])
redis.call('HDEL', recurrence_counters, ARGV[1] .. ':skipped', ARGV[1] .. ':enqueued', ARGV[1] .. ':last', ARGV[1] .. ':paused')
local kept = redis.call('HGETALL', recurrences_replaced)
for i = 1, #kept, 2 do
  if sub(kept[i], 1, #ARGV[1] + 1) == ARGV[1] .. '\n' then redis.call('HDEL', recurrences_replaced, kept[i]) end
end
return 1
