-- Pop at most `count` ready messages, of the list of priority 0 and the sorted set of others, in their order.

-- The tick at which a message of priority 0 became ready; 0 for a duplicate.
local function tick_of(id)
  local row = redis.call('HGET', rows, id)
  if row then return well_formed(row) and state_of(row) == 'ready' and number6(row, ENQUEUED) * TICKS or 0 end
  local record = readable(redis.call('HGET', records, id))
  return record and number6(record, RECORD_SCHEDULED) * TICKS or 0
end

local ids = {}
while #ids < count do
  local wanted_still, popped = count - #ids, nil
  local score = tonumber(redis.call('ZRANGE', ready_by_priority, 0, 0, 'WITHSCORES')[2])
  local first = redis.call('LINDEX', ready, 0)
  local tick = first and tick_of(first)
  if first and (not score or tick <= score) then
    local run = math.min(wanted_still, redis.call('LLEN', ready))
    local last_tick = score and tick_of(redis.call('LINDEX', ready, run - 1))
    local whole_run = not score or last_tick > 0 and last_tick <= score
    popped = redis.call('LPOP', ready, whole_run and run or 1)
  elseif score then
    local below = first and '(' .. decimal(tick) or '+inf'
    popped = redis.call('ZRANGEBYSCORE', ready_by_priority, '-inf', below, 'LIMIT', 0, wanted_still)
    redis.call('ZREM', ready_by_priority, unpack(popped))
  else
    break
  end
  for i = 1, #popped do ids[#ids + 1] = popped[i] end
end
return ids
