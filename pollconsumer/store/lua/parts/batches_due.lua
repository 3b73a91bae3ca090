-- In a trim: batches whose instant has come. One that is open is abandoned; one that is closed has expired; one that has ended
-- is forgotten.

local CHUNKS = 500  -- chunks that are removed at once

local function forget_chunks(batch, from, to)
  for first = from, to, CHUNKS do
    local fields = {}
    for chunk = first, math.min(to, first + CHUNKS - 1) do fields[#fields + 1] = batch .. '\n' .. chunk end
    redis.call('HDEL', batch_members, unpack(fields))
  end
end

-- The chunks of a batch whose producer told no total: from the first one on, until all ends were in them.
local function forget_ends(batch, state)
  local chunk, left = 0, number6(state, MEMBERS_COMPLETED) + number6(state, MEMBERS_DEAD)
  left = left + number6(state, MEMBERS_CANCELLED) + number6(state, MEMBERS_EXPIRED)
  while left > 0 and chunk < FIRST_ADDED / PER_CHUNK do
    local field = batch .. '\n' .. chunk
    local held = redis.call('HGET', batch_members, field) or ''
    for at = 1, #held do
      local codes = byte(held, at)
      while codes > 0 do
        left, codes = left - (codes % 4 > 0 and 1 or 0), floor(codes / 4)
      end
    end
    redis.call('HDEL', batch_members, field)
    chunk = chunk + 1
  end
end

for i = 1, #batches_due do
  local batch = batches_due[i]
  local state = state_of_batch(batch)
  if not state or has_batch_flag(state, BATCH_ENDED) then  -- GUARD what has ended is forgotten
    redis.call('ZREM', batch_instants, batch)
    if state then
      if has_batch_flag(state, BATCH_ABANDONED) then forget_ends(batch, state) end  -- GUARD an abandoned one has no total
      forget_chunks(batch, 0, floor(math.min(number6(state, TOTAL), FIRST_ADDED) / PER_CHUNK))
      forget_chunks(batch, FIRST_ADDED / PER_CHUNK, floor(number6(state, NEXT_NUMBER) / PER_CHUNK))
    end
    for _, callback in ipairs({'then', 'failed', 'ended'}) do
      redis.call('HDEL', batch_callbacks, batch .. '\n' .. callback)
    end
    redis.call('HDEL', batches, batch)
  else
    state = with_batch_flag(state, has_batch_flag(state, BATCH_CLOSED) and BATCH_EXPIRED or BATCH_ABANDONED)
    -- GUARD failed once, when it is shut
    if not has_batch_flag(state, TOLD_FAILED) then state = call_back(batch, state, 'failed', TOLD_FAILED, now) end
    redis.call('HSET', batches, batch, end_batch(batch, state, now))
  end
end
