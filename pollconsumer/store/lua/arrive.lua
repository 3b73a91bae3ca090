-- Count members that have ended, as reports say. Run at the queue of the batches.
-- KEYS batches batch_members batch_callbacks batch_instants outbox counters schedule_marker
-- NEEDS batches
-- ARGV for each report: batch, how the members ended as a letter of rows, how many members they have added, their
--   numbers with spaces in between
-- Returns how many entries were added to the outbox
-- A chunk of `batch_members` has two bits for each of 512 members: 0 for a member that has not ended, else a code. A
-- code never changes, except that of a dead letter, which may be redriven. So a report that arrives again, or late,
-- does nothing.

local COMPLETED_CODE, DEAD_CODE, OTHER_CODE = 1, 2, 3
local codes = {c = COMPLETED_CODE, d = DEAD_CODE, x = OTHER_CODE, e = OTHER_CODE}
local counts = {c = MEMBERS_COMPLETED, d = MEMBERS_DEAD, x = MEMBERS_CANCELLED, e = MEMBERS_EXPIRED}
local now = now_ms()
-- EXPECT batch_members batch_callbacks counters batch_instants outbox schedule_marker
local before = redis.call('LLEN', outbox)

for at = 1, #ARGV, 4 do
  local batch, ending, changed, revived = ARGV[at], ARGV[at + 1], 0, 0
  local state, code, count = state_of_batch(batch), codes[ending], counts[ending]
  local chunks = {}
  -- GUARD a batch that is forgotten
  for number in string.gmatch(state and ARGV[at + 3] or '', '%d+') do
    number = tonumber(number)
    local chunk, position = floor(number / PER_CHUNK), number % PER_CHUNK
    local bytes = chunks[chunk]
    if not bytes then
      local held = redis.call('HGET', batch_members, batch .. '\n' .. chunk)
      bytes = {byte(held or string.rep('\0', PER_CHUNK / 4), 1, -1)}
      chunks[chunk] = bytes
    end
    local index, weight = floor(position / 4) + 1, 4 ^ (position % 4)
    local held = floor(bytes[index] / weight) % 4
    if held == 0 or held == DEAD_CODE and code ~= DEAD_CODE then  -- GUARD a member counts once
      bytes[index] = bytes[index] + (code - held) * weight
      changed, revived = changed + 1, revived + (held == DEAD_CODE and 1 or 0)
    end
  end
  if changed > 0 then
    for chunk, bytes in pairs(chunks) do
      redis.call('HSET', batch_members, batch .. '\n' .. chunk, char(unpack(bytes)))
    end
    state = with_number(state, count, number6(state, count) + changed)
    -- GUARD dead no longer
    if revived > 0 then state = with_number(state, MEMBERS_DEAD, number6(state, MEMBERS_DEAD) - revived) end
    state = with_number(state, TOTAL, number6(state, TOTAL) + tonumber(ARGV[at + 2]))  -- GUARD grown before it ends
    conclude(batch, state, now)
  end
end
return redis.call('LLEN', outbox) - before
