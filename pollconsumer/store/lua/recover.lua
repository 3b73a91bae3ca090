-- Offer orphans again: messages reserved under a fence that no lease has any more; or, where the caller says which fences
-- are live, past the hard end of a launch that has none of those.
-- KEYS m r z f t k
-- ARGV rank to begin at, most messages to look at, 1 to look at hard ends, live fences
-- Returns ids of the orphans, messages looked at
-- The attempt stays counted, and so does the death of the process: a message that kills it must run out of both.

local now = now_ms()
redis.call('LLEN', r)
redis.call('ZCARD', z)
redis.call('LLEN', k)
local first = tonumber(ARGV[1])
local flight = redis.call('ZRANGE', f, first, first + tonumber(ARGV[2]) - 1, 'WITHSCORES')
if #flight == 0 then return {{}, 0} end
local valid, live = {}, {}
for _, fence in ipairs(redis.call('HVALS', t)) do valid[be6(tonumber(fence))] = true end
for i = 4, #ARGV do live[be6(tonumber(ARGV[i]))] = true end
local ids = {}
for i = 1, #flight, 2 do ids[#ids + 1] = flight[i] end
local rows = redis.call('HMGET', m, unpack(ids))
local orphans = {}
for i = #ids, 1, -1 do
  local id, row = ids[i], well_formed(rows[i])
  if not row then
    -- For the step that reserves it to find out what it lacks.
    redis.call('ZREM', f, id)
    redis.call('LPUSH', r, id)
    orphans[#orphans + 1] = id
  else
    local fence = sub(row, 9, 14)
    local late = ARGV[3] == '1' and tonumber(flight[2 * i]) <= now and not live[fence]
    if late or not valid[fence] then
      redis.call('ZREM', f, id)
      redis.call('HSET', m, id, sub(row, 1, 6) .. char(math.min(byte(row, 7) + 1, 255)) .. sub(row, 8, 14) .. NEVER
        .. NEVER .. sub(row, 27))
      local priority = priority_of(row)
      if priority == 0 then redis.call('LPUSH', r, id) else redis.call('ZADD', z, ready_score(priority, 0), id) end
      orphans[#orphans + 1] = id
    end
  end
end
if #orphans > 0 then wake(k) end
return {orphans, #ids}
