-- Add elements to a key of a store that is being imported.
-- KEYS target
-- ARGV type; for a list the number of elements before these; elements: for a hash field and value, for a zset score and
--   member
-- Returns 1; 0, with nothing changed, if a list has fewer elements
-- Idempotent.

local kind, added = ARGV[1], {unpack(ARGV, 3)}
if kind == 'list' then
  local present = redis.call('LLEN', target) - ARGV[2]
  if present < 0 then return 0 end  -- GUARD a page of a list has its place
  added = {unpack(added, present + 1)}  -- GUARD a page of a list counts once
  if #added > 0 then redis.call('RPUSH', target, unpack(added)) end
elseif kind == 'hash' then
  redis.call('HSET', target, unpack(added))
elseif kind == 'zset' then
  redis.call('ZADD', target, unpack(added))
elseif kind == 'set' then
  redis.call('SADD', target, unpack(added))
else
  redis.call('SET', target, added[1])
end
return 1
