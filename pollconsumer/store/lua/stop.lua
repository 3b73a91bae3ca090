-- Ask to stop a message in flight, and wake the heartbeat of its launch.
-- KEYS records rows stops stop_marker answered
-- NEEDS rows markers once
-- ARGV id; the fence under which the caller saw it reserved, with which `stop_marker` ends
-- Returns '' if that is recorded; its state if it is not in flight, or under another fence; 'newer' if a newer version
--   wrote its record; nil if there is no such message

local LISTENED_FOR_MS = 60000  -- a launch whose heartbeat does not look for so long has lost its lease

local row, state = message_of(ARGV[1])
if state ~= 'reserved' or number6(row, FENCE) ~= tonumber(ARGV[2]) then return state end
redis.call('HSETNX', stops, ARGV[1], be6(now_ms()))
wake(stop_marker)
redis.call('PEXPIRE', stop_marker, LISTENED_FOR_MS)
return ''
