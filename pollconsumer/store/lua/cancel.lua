-- Cancel a message that is not reserved yet.
-- KEYS records rows ready ready_by_priority schedule unique_keys counters cancelled parked places_taken
-- KEYS waiting_for_place checkpoints ready_marker
-- NEEDS removal ended
-- ARGV id
-- Returns '' when cancelled; its state when it is too late; 'newer' when its record is of a newer version; nil when there
--   is no such message

local row, record = well_formed(redis.call('HGET', rows, ARGV[1])), redis.call('HGET', records, ARGV[1])
if newer(record) then return 'newer' end  -- GUARD records of a newer version
record = readable(record)
if not row and not record then return false end
row = row or fresh_row(record)
local state = state_of(row)
if state ~= 'scheduled' and state ~= 'ready' then return state end  -- GUARD state
-- EXPECT cancelled ready ready_marker counters ready_by_priority waiting_for_place
remove(ARGV[1], row, record, state)
local flags = byte(row, FLAGS)
if has_flag(flags, PARKED) then redis.call('SREM', parked, ARGV[1]) end
if has_flag(flags, CHECKPOINT) then redis.call('HDEL', checkpoints, ARGV[1]) end  -- GUARD the checkpoint is dropped
end_as_cancelled(ARGV[1], row, record, now_ms())
return ''
