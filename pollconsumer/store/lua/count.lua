-- Add to the totals what a launch has counted since its last call.
-- KEYS totals
-- NEEDS numbers
-- ARGV lineage, the call's number, for each: name of the total, increment
-- Returns 1; 0 when this call was carried out before
-- A total that is no number begins again at 0.

local last, names, sums = 'call\n' .. ARGV[1], {}, {}
if redis.call('HGET', totals, last) == ARGV[2] then return 0 end
for i = 3, #ARGV, 2 do names[#names + 1] = ARGV[i] end
local held = redis.call('HMGET', totals, unpack(names))
for i = 1, #names do
  sums[2 * i - 1], sums[2 * i] = names[i], decimal((tonumber(held[i] or '') or 0) + ARGV[2 * i + 2])
end
redis.call('HSET', totals, last, ARGV[2], unpack(sums))
return 1
