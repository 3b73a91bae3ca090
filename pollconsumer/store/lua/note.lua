-- Add what a person did to the audit log, as its newest entry.
-- KEYS audit answered
-- NEEDS numbers once
-- ARGV maximum number of entries, what was done as JSON
-- Returns the number of entries, and one that was dropped

local noted = redis.call('LPUSH', audit, decimal(now_ms()) .. ' ' .. ARGV[2])
redis.call('LTRIM', audit, 0, ARGV[1] - 1)  -- GUARD most notes
return noted
