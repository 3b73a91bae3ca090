-- Move due messages from the schedule to their queue, oldest due time first.
-- KEYS rows ready ready_by_priority schedule counters announced ready_marker next_instants
-- NEEDS fences ready markers
-- ARGV lineage, fence, most messages to move
-- Returns messages moved, ms until the next due time (-1 when there is none), 1 when a recurrence is due
-- Refusals: FENCED, FORGOTTEN
-- An id without a row becomes ready, too: the step that pops it handles the missing row. The id of a message that is
-- reserved or has ended is corrupt: it is dropped.

local refusal = refusal_of(ARGV[1], ARGV[2])
if refusal then return refusal end
local now = now_ms()
local stamp = be6(now)
-- EXPECT ready ready_marker counters ready_by_priority
local ids = redis.call('ZRANGEBYSCORE', schedule, '-inf', now, 'LIMIT', 0, ARGV[3])
if #ids > 0 then
  local found_rows = redis.call('HMGET', rows, unpack(ids))
  redis.call('ZREM', schedule, unpack(ids))
  local new_rows, new_ready, new_ranked = {}, {}, {}
  for i = 1, #ids do
    local id, row = ids[i], well_formed(found_rows[i])
    local priority, state = 0, row and state_of(row) or 'scheduled'
    if state ~= 'scheduled' and state ~= 'ready' then
      priority = nil
    elseif row then
      priority = priority_of(row)
      new_rows[#new_rows + 1], new_rows[#new_rows + 2] = id, set(row, ENQUEUED, stamp, NEXT_ATTEMPT, NEVER)
    end
    if priority == 0 then
      new_ready[#new_ready + 1] = id
    elseif priority then
      new_ranked[#new_ranked + 1], new_ranked[#new_ranked + 2] = ready_score(priority, next_ticks(1, now)), id
    end
  end
  if #new_rows > 0 then redis.call('HSET', rows, unpack(new_rows)) end
  if #new_ready > 0 then redis.call('RPUSH', ready, unpack(new_ready)) end
  if #new_ranked > 0 then redis.call('ZADD', ready_by_priority, unpack(new_ranked)) end
  wake(ready_marker)
end
local next_due, longest = -1, 31536000000  -- a year in ms: corrupt scores may exceed the integers of a reply
for _, key in ipairs({schedule, next_instants}) do
  local head = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  local left = head and math.min(longest, math.max(0, tonumber(head) - now))
  if left and (next_due < 0 or left < next_due) then next_due = left end
end
return {#ids, next_due, redis.call('ZCOUNT', next_instants, '-inf', now)}
