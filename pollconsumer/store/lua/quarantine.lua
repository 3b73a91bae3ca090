-- Quarantine unreadable recurrences, with their instants, so that they do not hold up others.
-- KEYS announced next_instants recurrences_unreadable
-- ARGV lease name, fence; for each: name, due instant
-- Refusals: FENCED

-- GUARD fence compare
if redis.call('HGET', announced, ARGV[1]) ~= ARGV[2] then return redis.error_reply('FENCED ' .. ARGV[1]) end
redis.call('ZCARD', recurrences_unreadable)
for i = 3, #ARGV, 2 do
  if redis.call('ZSCORE', next_instants, ARGV[i]) == ARGV[i + 1] then  -- GUARD instant compare
    redis.call('ZREM', next_instants, ARGV[i])
    redis.call('ZADD', recurrences_unreadable, ARGV[i + 1], ARGV[i])
  end
end
return 1
