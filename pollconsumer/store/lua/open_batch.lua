-- Open a batch at its queue. If it is open, record that its producer is alive.
-- KEYS batches batch_callbacks batch_instants outbox counters schedule_marker
-- NEEDS batches
-- ARGV batch; ms after which it is abandoned unless its producer opens it again; ms after which it expires (0 for
--   never); its total if it is closed at once, else ''; 1 if cancelled members count as completed, else 0; how many
--   batches may have not ended, '' for any number; for each callback: name, entry
-- Returns '' if it is new, 'open' if it was open, 'full' if there are too many, else why it accepts no members

local batch, now = ARGV[1], now_ms()
-- EXPECT batch_callbacks counters batch_instants outbox schedule_marker
local found = state_of_batch(batch)
local state, shut = found, found and why_shut(found)
if shut then return shut end  -- GUARD a batch that is shut
if not state then  -- GUARD a batch that is there
  local expires, others = tonumber(ARGV[3]), going_on()
  if ARGV[6] ~= '' and others >= tonumber(ARGV[6]) then return 'full' end  -- GUARD most batches
  redis.call('HSET', counters, 'batches', decimal(others + 1))
  state = char(ARGV[5] == '1' and CANCELLED_AS_COMPLETED or 0) .. string.rep(NEVER, 5) .. be6(now) .. NEVER .. be6(expires > 0 and now + expires or 0) .. be6(FIRST_ADDED)
  for i = 7, #ARGV, 2 do redis.call('HSET', batch_callbacks, batch .. '\n' .. ARGV[i], ARGV[i + 1]) end
end
if ARGV[4] ~= '' then
  redis.call('ZADD', batch_instants, number6(state, BATCH_EXPIRES) > 0 and number6(state, BATCH_EXPIRES) or '+inf', batch)
  conclude(batch, with_batch_flag(with_number(state, TOTAL, tonumber(ARGV[4])), BATCH_CLOSED), now)
else
  redis.call('HSET', batches, batch, state)
  redis.call('ZADD', batch_instants, now + ARGV[2], batch)  -- GUARD abandoned unless its producer lives
end
return found and 'open' or ''
