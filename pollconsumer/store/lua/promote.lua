-- Move due messages from the schedule to their queue, oldest due time first.
-- KEYS m r z s c t k nz
-- ARGV lineage, fence, most messages to move
-- Returns messages moved, ms until the next due time (-1 when there is none), 1 when a recurrence is due
-- Refusals: FENCED, FORGOTTEN
-- An id without a row becomes ready all the same: it is for the step that reserves it to find out what is missing. One
-- whose message is reserved, or has ended, was scheduled by somebody else: it is dropped.

local refusal = not_ours(ARGV[1], ARGV[2])
if refusal then return refusal end
local now = now_ms()
local stamp = be6(now)
redis.call('LLEN', r)
redis.call('ZCARD', z)
redis.call('LLEN', k)
redis.call('HLEN', c)
local ids = redis.call('ZRANGEBYSCORE', s, '-inf', now, 'LIMIT', 0, ARGV[3])
if #ids > 0 then
  local rows = redis.call('HMGET', m, unpack(ids))
  redis.call('ZREM', s, unpack(ids))
  local new_rows, ready, ranked = {}, {}, {}
  for i = 1, #ids do
    local id, row = ids[i], well_formed(rows[i])
    local priority, state = 0, row and state_of(row) or 'scheduled'
    if state ~= 'scheduled' and state ~= 'ready' then
      priority = nil
    elseif row then
      priority = priority_of(row)
      new_rows[#new_rows + 1] = id
      new_rows[#new_rows + 1] = sub(row, 1, 44) .. stamp .. sub(row, 51, 56) .. NEVER .. sub(row, 63)
    end
    if priority == 0 then
      ready[#ready + 1] = id
    elseif priority then
      ranked[#ranked + 1] = ready_score(priority, next_ticks(1, now))
      ranked[#ranked + 1] = id
    end
  end
  if #new_rows > 0 then redis.call('HSET', m, unpack(new_rows)) end
  if #ready > 0 then redis.call('RPUSH', r, unpack(ready)) end
  if #ranked > 0 then redis.call('ZADD', z, unpack(ranked)) end
  wake(k)
end
local next_due, longest = -1, 31536000000  -- what stands beyond a year may be no number that a reply can hold
for _, key in ipairs({s, nz}) do
  local head = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  local left = head and math.min(longest, math.max(0, tonumber(head) - now))
  if left and (next_due < 0 or left < next_due) then next_due = left end
end
return {#ids, next_due, redis.call('ZCOUNT', nz, '-inf', now)}
