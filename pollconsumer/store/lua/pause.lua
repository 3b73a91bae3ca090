-- Pause or resume a queue.
-- KEYS paused ready_marker answered
-- NEEDS markers numbers once
-- ARGV 1 to pause, 0 to resume; ms after which the pause ends by itself, 0 for never
-- Returns 1; 0 if it was paused or resumed already

if ARGV[1] == '1' then
  local now, before = now_ms(), redis.call('GET', paused)
  local begun = redis.call('SETNX', paused, now)
  local since = string.match(redis.call('GET', paused), '^%d+') or now
  if ARGV[2] ~= '0' then  -- GUARD a pause ends by itself
    redis.call('SET', paused, string.format('%s %.0f', since, now + ARGV[2]), 'PX', ARGV[2])
  elseif begun == 0 then
    redis.call('SET', paused, since)  -- GUARD a pause without an end takes the place of one that has
  end
  return redis.call('GET', paused) == before and 0 or 1
end
wake(ready_marker)
return redis.call('DEL', paused)
