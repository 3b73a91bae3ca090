-- Reserve numbers for members that a member will add to its batch. Some may remain unused.
-- KEYS batches
-- NEEDS batches
-- ARGV batch, how many
-- Returns the first number; nil if there is no such batch

local state = state_of_batch(ARGV[1])
if not state then return nil end
local number = number6(state, NEXT_NUMBER)
-- GUARD numbers are given once
redis.call('HSET', batches, ARGV[1], with_number(state, NEXT_NUMBER, number + tonumber(ARGV[2])))
return number
