-- Take the word of a holder that is gone out of a queue: what it still has reserved there is an orphan from here on.
-- KEYS announced
-- ARGV lineage, fence

if redis.call('HGET', announced, ARGV[1]) == ARGV[2] then redis.call('HDEL', announced, ARGV[1]) end
return 1
