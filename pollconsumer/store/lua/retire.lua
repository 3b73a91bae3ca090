-- Revoke a dead holder's announcement in a queue, so that its reservations there become orphans.
-- KEYS announced
-- ARGV lease name, fence
-- '0' is below every fence. Without the field the queue would look emptied once the next announcement is lost.

-- GUARD owner compare
if redis.call('HGET', announced, ARGV[1]) == ARGV[2] then redis.call('HSET', announced, ARGV[1], '0') end
return 1
