-- Stop being the successor.
-- KEYS next
-- ARGV launch

if redis.call('GET', next) == ARGV[1] then redis.call('DEL', next) end  -- GUARD owner compare
return 1
