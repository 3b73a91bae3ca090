-- Take the word of a holder that is gone out of a queue: what it still has reserved there is an orphan from here on.
-- KEYS t
-- ARGV lineage, fence

if redis.call('HGET', t, ARGV[1]) == ARGV[2] then redis.call('HDEL', t, ARGV[1]) end
return 1
