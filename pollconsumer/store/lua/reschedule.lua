-- Change the due time of a message that is not reserved yet.
-- KEYS records rows ready ready_by_priority schedule counters ready_marker schedule_marker places_taken
-- KEYS waiting_for_place
-- NEEDS removal schedule
-- ARGV id, when ('+n' in n ms, '=n' at epoch ms n)
-- Returns '' when rescheduled; its state when it is too late; 'newer' when its record is of a newer version; nil when there
--   is no such message

local row, state, record = message_of(ARGV[1])
if state ~= 'scheduled' and state ~= 'ready' then return state end  -- GUARD state
local exactly = exactly_now()
local now, due = floor(exactly), tonumber(sub(ARGV[2], 2))
if sub(ARGV[2], 1, 1) == '+' then due = exactly + due end
if due <= exactly and state == 'ready' then return '' end
-- EXPECT ready ready_marker schedule schedule_marker counters ready_by_priority waiting_for_place
remove(ARGV[1], row, record, state)
-- GUARD booked no longer
row = set(row, FLAGS, char(without_flag(without_flag(byte(row, FLAGS), WAITING), BOOKED)), NUMBER_IN_LINE, NEVER, DUE, be6(floor(due)))
-- After a failed attempt, the due time is that of the next attempt.
local next_attempt = six(row, NEXT_ATTEMPT) ~= NEVER and six(row, DUE) or NEVER
if due <= exactly then
  redis.call('HSET', rows, ARGV[1], set(row, ENQUEUED, be6(now), NEXT_ATTEMPT, NEVER))
  make_ready(ARGV[1], priority_of(row), now)
  wake(ready_marker)
else
  redis.call('HSET', rows, ARGV[1], set(row, ENQUEUED, NEVER, NEXT_ATTEMPT, next_attempt))
  put_in_schedule(ARGV[1], due)
end
return ''
