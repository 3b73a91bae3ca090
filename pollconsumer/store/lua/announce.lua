-- Make a queue refuse every earlier holder of a lease from now on.
-- KEYS announced successor_waits served
-- NEEDS whole
-- ARGV lineage, fence, ms for which the queue counts as served from now on ('0' if it does not)
-- Refusals: FENCED when a newer holder was here first; FOREIGN with a corrupt key

for _, fence in ipairs(redis.call('HVALS', announced)) do
  if not whole(fence) then return redis.error_reply('FOREIGN ' .. announced) end
end
local seen = redis.call('HGET', announced, ARGV[1])
if seen and tonumber(seen) > tonumber(ARGV[2]) then return redis.error_reply('FENCED ' .. ARGV[1]) end
redis.call('HSET', announced, ARGV[1], ARGV[2])
redis.call('DEL', successor_waits)  -- our own call: the previous holder has handed over
if ARGV[3] ~= '0' then redis.call('SET', served, 1, 'PX', ARGV[3]) end
return 1
