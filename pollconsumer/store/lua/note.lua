-- Note what a person did.
-- KEYS interventions
-- NEEDS numbers
-- ARGV most to keep, mark of this call and what was done as JSON
-- Returns 1; 0 when this call has noted it already

local noted = redis.call('ZADD', interventions, 'NX', exactly_now(), ARGV[2])
local beyond = redis.call('ZCARD', interventions) - tonumber(ARGV[1])
if beyond > 0 then redis.call('ZREM', interventions, unpack(redis.call('ZRANGE', interventions, 0, math.min(beyond, 1000) - 1))) end
return noted
