-- Pause or resume a handler.
-- KEYS paused_handlers answered
-- NEEDS numbers once
-- ARGV handler, 1 to pause, 0 to resume
-- Returns 1; 0 if it was paused or resumed already

if ARGV[2] == '1' then return redis.call('HSETNX', paused_handlers, ARGV[1], decimal(now_ms())) end
return redis.call('HDEL', paused_handlers, ARGV[1])
