-- Revoke the announcement of a dead holder in a queue, so that its reservations there become orphans.
-- KEYS announced
-- ARGV lease name, fence
-- '0' is below every fence. A missing field would look like an emptied store.

-- GUARD owner compare
if redis.call('HGET', announced, ARGV[1]) == ARGV[2] then redis.call('HSET', announced, ARGV[1], '0') end
return 1
