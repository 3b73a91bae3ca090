-- Close a batch: its producer adds no more members. If all have ended, the batch ends.
-- KEYS batches batch_callbacks batch_instants outbox counters schedule_marker
-- NEEDS batches
-- ARGV batch, members that its producer has added
-- Returns '' if this call closed it, else its state; nil if there is none

local batch, now = ARGV[1], now_ms()
-- EXPECT batch_callbacks counters batch_instants outbox schedule_marker
local state = state_of_batch(batch)
if not state then return nil end
local shut = why_shut(state)
if shut then return shut end  -- GUARD a batch is closed once
local expires = number6(state, BATCH_EXPIRES)
redis.call('ZADD', batch_instants, expires > 0 and expires or '+inf', batch)
-- GUARD its producer's members count
state = with_number(state, TOTAL, number6(state, TOTAL) + tonumber(ARGV[2]))
conclude(batch, with_batch_flag(state, BATCH_CLOSED), now)
return ''
