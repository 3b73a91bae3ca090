-- Record what a person did, as the newest entry.
-- KEYS audit answered
-- NEEDS numbers once
-- ARGV most to keep, what was done as JSON
-- Returns how many there are, and one that is dropped

local noted = redis.call('LPUSH', audit, decimal(now_ms()) .. ' ' .. ARGV[2])
redis.call('LTRIM', audit, 0, ARGV[1] - 1)  -- GUARD most notes
return noted
