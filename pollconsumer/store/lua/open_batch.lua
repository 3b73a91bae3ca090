-- Open a batch at its home; or, if it is open, say that its producer lives.
-- KEYS batches batch_callbacks batch_instants outbox counters schedule_marker
-- NEEDS batches
-- ARGV batch, ms after which it is abandoned unless its producer says that it lives, ms after which it expires (0 for never),
--   its total if it is closed at once, else ''; for each callback: name, entry
-- Returns '' if it is new, else how it is: open, or why it takes no more members

local batch, now = ARGV[1], now_ms()
-- EXPECT batch_callbacks batch_instants outbox counters schedule_marker
local found = redis.call('HGET', batches, batch)
local state = found
local shut = state and why_shut(state)
if shut then return shut end  -- GUARD a batch that is shut
if not state then  -- GUARD a batch that is there
  local expires = tonumber(ARGV[3])
  state = '\0' .. string.rep(NEVER, 5) .. be6(now) .. NEVER .. be6(expires > 0 and now + expires or 0) .. be6(FIRST_ADDED)
  for i = 5, #ARGV, 2 do redis.call('HSET', batch_callbacks, batch .. '\n' .. ARGV[i], ARGV[i + 1]) end
end
if ARGV[4] ~= '' then
  redis.call('ZADD', batch_instants, number6(state, BATCH_EXPIRES) > 0 and number6(state, BATCH_EXPIRES) or '+inf', batch)
  conclude(batch, with_batch_flag(with_number(state, TOTAL, tonumber(ARGV[4])), BATCH_CLOSED), now)
else
  redis.call('HSET', batches, batch, state)
  redis.call('ZADD', batch_instants, now + ARGV[2], batch)
end
return found and 'open' or ''
