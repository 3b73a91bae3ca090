-- Pause or resume a queue.
-- KEYS paused ready_marker
-- NEEDS markers numbers
-- ARGV 1 to pause, 0 to resume
-- Returns 1 if that changed anything

if ARGV[1] == '1' then return redis.call('SETNX', paused, now_ms()) end
wake(ready_marker)
return redis.call('DEL', paused)
