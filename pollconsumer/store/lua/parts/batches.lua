-- NEEDS outbox markers
-- Batches in their queue. A batch's state has flags, then numbers of six bytes: its total; how many members are
-- completed, dead, cancelled and expired; when it was opened, when it ended, when it expires (0 for never); and the
-- next number for a member that members add. Callbacks are stored apart, each as an entry of the outbox.

local BATCH_FLAGS, TOTAL, MEMBERS_COMPLETED, MEMBERS_DEAD, MEMBERS_CANCELLED, MEMBERS_EXPIRED = 1, 2, 8, 14, 20, 26
local OPENED_AT, BATCH_ENDED_AT, BATCH_EXPIRES, NEXT_NUMBER = 32, 38, 44, 50
local BATCH_CLOSED, BATCH_ENDED, CALLED_THEN, CALLED_FAILED, BATCH_ABANDONED, BATCH_EXPIRED = 1, 2, 4, 8, 16, 32
local CANCELLED_AS_COMPLETED = 64
local PER_CHUNK = 512  -- members of which a field of batch_members tells
local FIRST_ADDED = 1048576  -- numbers from here on are of members that members have added
local ENDED_KEPT_MS = 172800000  -- an ended batch is kept for two days


local function with_batch_flag(state, flag)
  return char(byte(state, BATCH_FLAGS) + flag) .. sub(state, TOTAL)
end

local function has_batch_flag(state, flag)
  return byte(state, BATCH_FLAGS) % (2 * flag) >= flag
end

local function with_number(state, field, number)
  return sub(state, 1, field - 1) .. be6(number) .. sub(state, field + 6)
end

-- The state of a batch; nil if there is none, or it is corrupt. Numbers of members have eight digits at most.
local BATCH_BYTES, LAST_NUMBER = 55, 100000000
local function state_of_batch(batch)
  local state = redis.call('HGET', batches, batch)
  return state and #state == BATCH_BYTES and number6(state, NEXT_NUMBER) <= LAST_NUMBER and state or nil  -- GUARD a state that is none
end

-- Enqueue a callback unless a flag says that it was enqueued. Returns the new state.
local function call_back(batch, state, callback, flag, now)
  local message = redis.call('HGET', batch_callbacks, batch .. '\n' .. callback)
  if message then
    send_on(message, now)
    -- GUARD who sends callbacks is woken
    wake(schedule_marker)  -- whoever serves the queue promotes, and sends on what the outbox has
  end
  return with_batch_flag(state, flag)
end

-- The number of batches that have not ended.
local function going_on()
  return tonumber(redis.call('HGET', counters, 'batches') or 0) or 0
end

-- End a batch, for whatever reason. Returns the new state.
local function end_batch(batch, state, now)
  redis.call('ZADD', batch_instants, now + ENDED_KEPT_MS, batch)
  redis.call('HSET', counters, 'batches', decimal(going_on() - 1))  -- GUARD batches that have ended make room
  return call_back(batch, with_number(state, BATCH_ENDED_AT, now), 'ended', BATCH_ENDED, now)
end

-- Store the state of a batch, and enqueue the callbacks that are due by it.
local function conclude(batch, state, now)
  local total, completed, cancelled = number6(state, TOTAL), number6(state, MEMBERS_COMPLETED), number6(state, MEMBERS_CANCELLED)
  local others = number6(state, MEMBERS_DEAD) + number6(state, MEMBERS_EXPIRED) + cancelled
  -- GUARD cancelled members that count as completed
  if has_batch_flag(state, CANCELLED_AS_COMPLETED) then completed, others = completed + cancelled, others - cancelled end
  if others > 0 and not has_batch_flag(state, CALLED_FAILED) then  -- GUARD failed once
    state = call_back(batch, state, 'failed', CALLED_FAILED, now)
  end
  if has_batch_flag(state, BATCH_CLOSED) and completed + others >= total then  -- GUARD closed before it ends; all have ended
    if completed >= total and not has_batch_flag(state, CALLED_THEN) then  -- GUARD all completed; then once
      state = call_back(batch, state, 'then', CALLED_THEN, now)
    end
    if not has_batch_flag(state, BATCH_ENDED) then state = end_batch(batch, state, now) end  -- GUARD ended once
  end
  redis.call('HSET', batches, batch, state)
end

-- Why a batch accepts no more members; nil if it does.
local function why_shut(state)
  if has_batch_flag(state, BATCH_ABANDONED) then return 'abandoned' end
  if has_batch_flag(state, BATCH_EXPIRED) then return 'expired' end
  if has_batch_flag(state, BATCH_ENDED) then return 'ended' end
  if has_batch_flag(state, BATCH_CLOSED) then return 'closed' end
end
