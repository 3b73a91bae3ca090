-- Store a signal for a message, unless it has one of that name, and wake the message if it waits for the signal.
-- KEYS records rows checkpoints schedule schedule_marker
-- NEEDS rows schedule message_steps
-- ARGV id; a line feed, the name and a tab; value; maximum bytes of the signals of a message;
--   1 for an answer to a call, which a dead letter keeps until it is redriven
-- Returns '' if this value is stored, by this call or an earlier one; 'sent' if that name has another value; 'full' if
--   the message has too many signals; its state if it has ended; 'newer' if a newer version wrote its record; nil if
--   there is no such message

local id = ARGV[1]
local row, state = message_of(id)
local unfinished = state == 'scheduled' or state == 'ready' or state == 'reserved'
if not unfinished and not (state == 'dead' and ARGV[5]) then return state end  -- GUARD state
local now = now_ms()
local awaited, sent, head = awaited_and_sent(id)
local line = ARGV[2] .. decimal(now) .. ' ' .. ARGV[3]
local _, ends = find(sent, ARGV[2], 1, true)
if ends then  -- GUARD the first signal of a name
  return string.match(sent, '^%d+ ([^\n]*)', ends + 1) == ARGV[3] and '' or 'sent'
end
if #sent + #line > tonumber(ARGV[4]) then return 'full' end
-- EXPECT schedule schedule_marker
redis.call('HSET', checkpoints, id .. '\n', head or '0 ', id .. '\n0', sent .. line)
-- A message that waits for its rate is not woken: it finds the signal when it begins.
if state == 'scheduled' and awaited == sub(ARGV[2], 2, -2) and not has_flag(byte(row, FLAGS), BOOKED) then
  redis.call('HSET', rows, id, set(row, NEXT_ATTEMPT, be6(now)))
  put_in_schedule(id, now)  -- GUARD a signal wakes its message
end
return ''
