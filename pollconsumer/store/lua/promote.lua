-- Move due messages from the schedule to their queue, oldest due time first.
-- KEYS rows ready ready_by_priority schedule counters announced ready_marker next_instants in_flight waiting_for_place
-- KEYS outbox
-- NEEDS fences ready markers
-- ARGV lease name, fence, most messages to move
-- Returns messages moved; µs until the next due time (-1 if there is none); 1 if a recurrence is due; 1 if there is
--   anything that may need a repair
-- Refusals: FENCED, FORGOTTEN
-- The types of keys were checked when the launch announced itself. An id without a row becomes ready, too: the step
-- that pops it handles that. An id of a message that is reserved or has ended is corrupt, and is dropped.

local refusal = refusal_of(ARGV[1], ARGV[2])  -- GUARD fence compare
if refusal then return refusal end
local exactly = exactly_now()
local now = floor(exactly)
-- GUARD what is due alone
local ids = redis.call('ZRANGEBYSCORE', schedule, '-inf', due_score(exactly), 'LIMIT', 0, ARGV[3])
if #ids > 0 then
  local found_rows, stamp = redis.call('HMGET', rows, unpack(ids)), be6(now)
  redis.call('ZREM', schedule, unpack(ids))  -- GUARD removed from the schedule
  local new_rows, new_ready, new_ranked = {}, {}, {}
  for i = 1, #ids do
    local id, row = ids[i], well_formed(found_rows[i])
    local priority = row and priority_of(row) or 0
    if row and (sub(row, ENDING, ENDING) ~= '\0' or six(row, RESERVED) ~= NEVER) then  -- GUARD state
      priority = nil
    elseif row then
      new_rows[#new_rows + 1] = id
      new_rows[#new_rows + 1] = sub(row, 1, ENQUEUED - 1) .. stamp .. six(row, FAILED) .. NEVER .. sub(row, HANDLER)
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
local longest = 31536000000000  -- a year in µs: corrupt scores may exceed the integers of a reply
local head = redis.call('ZRANGE', schedule, 0, 0, 'WITHSCORES')[2]
local next_due = head and math.min(longest, math.max(0, tonumber(head) - exactly * 1000)) or -1
local instant = redis.call('ZRANGE', next_instants, 0, 0, 'WITHSCORES')[2]
if instant then
  local left = math.min(longest, math.max(0, tonumber(instant) - exactly) * 1000)
  if next_due < 0 or left < next_due then next_due = left end
end
local to_repair = redis.call('EXISTS', in_flight, waiting_for_place, outbox) > 0
return {#ids, math.ceil(next_due), instant and tonumber(instant) <= now and 1 or 0, to_repair and 1 or 0}
