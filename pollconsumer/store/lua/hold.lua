-- Pause or resume a recurrence.
-- KEYS recurrences next_instants recurrence_counters schedule_marker recurrences_unreadable recurrences_ended
-- KEYS answered
-- NEEDS recurrences once
-- ARGV name, 'pause' or 'resume', next instant in epoch ms to resume with ('' for none, 'ended' if there never will be one)
-- Returns 1; 0 if it was paused or resumed already; nil if there is no recurrence of that name

if redis.call('HEXISTS', recurrences, ARGV[1]) == 0 then return nil end  -- GUARD its definition is there
local paused = ARGV[1] .. ':paused'
if ARGV[2] == 'pause' then
  -- The pause has the instant at which the recurrence would have been due, from which its periods count.
  local before = redis.call('HGET', recurrence_counters, ARGV[1] .. ':before')
  local following = before and string.match('\n' .. before, '.*\n%d+ (%d+) [^\n]*\n$')
  -- GUARD periods of the rule that waits
  local begun = redis.call('HSETNX', recurrence_counters, paused, following or redis.call('ZSCORE', next_instants, ARGV[1]) or 1)
  redis.call('ZREM', next_instants, ARGV[1])
  redis.call('ZREM', recurrences_unreadable, ARGV[1])
  return begun
elseif redis.call('HDEL', recurrence_counters, paused) == 0 then
  return 0
elseif ARGV[3] == '' then
  return 1
elseif ARGV[3] == 'ended' then
  finish(ARGV[1], now_ms())
else
  begin(ARGV[1], ARGV[3])
end
return 1
