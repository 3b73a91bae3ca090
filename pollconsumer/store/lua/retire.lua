-- Remove a dead holder's announcement from a queue: its reservations there become orphans.
-- KEYS announced
-- ARGV lineage, fence

if redis.call('HGET', announced, ARGV[1]) == ARGV[2] then redis.call('HDEL', announced, ARGV[1]) end
return 1
