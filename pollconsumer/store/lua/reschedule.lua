-- Change the due time of a message that is not reserved yet.
-- KEYS records rows ready ready_by_priority schedule counters ready_marker schedule_marker places_taken
-- KEYS waiting_for_place
-- NEEDS change
-- ARGV id, when ('+n' in n ms, '=n' at epoch ms n)
-- Returns '' when rescheduled; its state when it is too late; 'newer' when its record is of a newer version; nil when there
--   is no such message

local row, state, record = message_of(ARGV[1])
if state ~= 'scheduled' and state ~= 'ready' then return state end  -- GUARD state
local exactly = exactly_now()
local due = tonumber(sub(ARGV[2], 2))
if sub(ARGV[2], 1, 1) == '+' then due = exactly + due end
if due <= exactly and state == 'ready' then return '' end
-- EXPECT ready ready_marker schedule schedule_marker counters ready_by_priority waiting_for_place
local changed = set(row, DUE, be6(floor(due)))
-- After a failed attempt, the due time is that of the next attempt.
if six(row, NEXT_ATTEMPT) ~= NEVER then changed = set(changed, NEXT_ATTEMPT, six(changed, DUE)) end
wait_anew(ARGV[1], row, changed, record, state, due, exactly)
return ''
