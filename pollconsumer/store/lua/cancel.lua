-- Cancel a message that is not reserved yet.
-- KEYS records rows ready ready_by_priority schedule unique_keys counters cancelled parked places_taken
-- KEYS waiting_for_place checkpoints ready_marker outbox
-- NEEDS removal ended message_steps
-- ARGV id
-- Returns '' when cancelled; its state when it is too late; 'newer' when its record is of a newer version; nil when there
--   is no such message

local row, state, record = message_of(ARGV[1])
if state ~= 'scheduled' and state ~= 'ready' then return state end  -- GUARD state
-- EXPECT cancelled ready ready_marker counters ready_by_priority waiting_for_place outbox
remove(ARGV[1], row, record, state)
local flags = byte(row, FLAGS)
if has_flag(flags, PARKED) then redis.call('SREM', parked, ARGV[1]) end
drop_checkpoints({ARGV[1]})  -- GUARD the checkpoint is dropped
end_as_cancelled(ARGV[1], row, record, now_ms())
return ''
