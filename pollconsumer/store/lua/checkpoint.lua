-- Keep how far a message has come, for whoever handles it next.
-- KEYS m t y
-- ARGV lineage, fence, id, row as reserved, row to be, checkpoint
-- Returns 1; 0 when the reservation is no longer the caller's
-- Refusals: FENCED

if redis.call('HGET', t, ARGV[1]) ~= ARGV[2] then return redis.error_reply('FENCED ' .. ARGV[1]) end
if redis.call('HGET', m, ARGV[3]) ~= ARGV[4] then return 0 end
redis.call('HSET', y, ARGV[3], ARGV[6])
redis.call('HSET', m, ARGV[3], ARGV[5])
return 1
