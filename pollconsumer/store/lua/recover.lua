-- Offer orphans again: messages reserved under a fence that no lease has any more; or, where the caller says which fences
-- are live, past the hard end of a launch that has none of those.
-- KEYS b m r z f x e u c t k g w
-- ARGV how many with the highest hard ends to leave out, most messages to look at, 1 to look at hard ends, live fences
-- Returns ids of the orphans, messages looked at, and of those that are dead letters now id, row, problem
-- The attempt stays counted, and so does the death of the process: a message that kills it must run out of both. One that
-- was begun for the only time is a dead letter.

local now = now_ms()
redis.call('LLEN', r)
redis.call('ZCARD', z)
redis.call('LLEN', k)
redis.call('HLEN', c)
redis.call('HLEN', g)
redis.call('ZCARD', w)
local last = -1 - tonumber(ARGV[1])
local flight = redis.call('ZRANGE', f, last - tonumber(ARGV[2]) + 1, last, 'WITHSCORES')
if #flight == 0 then return {{}, 0, {}} end
local valid, live = {}, {}
for _, fence in ipairs(redis.call('HVALS', t)) do valid[be6(tonumber(fence))] = true end
for i = 4, #ARGV do live[be6(tonumber(ARGV[i]))] = true end
local ids, hard_ends = {}, {}
for i = 1, #flight, 2 do
  ids[#ids + 1] = flight[i]
  hard_ends[flight[i]] = tonumber(flight[i + 1])
end
local order = by_reservation(ids, redis.call('HMGET', m, unpack(ids)))
local orphans, returning, freed, dead = {}, {}, {}, {}
local SKIPPED = 'skipped: its process died while it was handled, and it is delivered at most once'

local function record_of(id)
  return readable(redis.call('HGET', b, id))
end

local function skip(id, row)
  local record = has_flag(byte(row, 1), UNIQUE) and record_of(id)
  if record then free_key(id, record) end
  local _, key = concurrency(has_flag(byte(row, 1), CONCURRENCY) and record_of(id))
  if key then
    leave_place(key)
    freed[#freed + 1] = key
  end
  redis.call('HSET', m, id, sub(row, 1, 1) .. 'd' .. sub(row, 3, 26) .. be6(now) .. sub(row, 33))
  redis.call('HSET', e, id, SKIPPED)
  redis.call('ZADD', x, now, id)
  redis.call('HINCRBY', c, 'skipped', 1)
  dead[#dead + 1] = id
  dead[#dead + 1] = row
  dead[#dead + 1] = SKIPPED
end

for i = #order, 1, -1 do
  local id, row = order[i].id, order[i].row
  if not row then
    -- For the step that reserves it to find out what it lacks.
    local _, key = concurrency(record_of(id))
    if key then leave_place(key) end
    redis.call('ZREM', f, id)
    redis.call('LPUSH', r, id)
    orphans[#orphans + 1] = id
  else
    local fence = sub(row, 9, 14)
    local late = ARGV[3] == '1' and hard_ends[id] <= now and not live[fence]
    if late or not valid[fence] then
      redis.call('ZREM', f, id)
      row = sub(row, 1, 6) .. char(math.min(byte(row, 7) + 1, 255)) .. sub(row, 8)
      if has_flag(byte(row, 1), BEGUN) then
        skip(id, row)
      else
        returning[#returning + 1] = id
        returning[#returning + 1] = sub(row, 1, 14) .. NEVER .. NEVER .. sub(row, 27)
      end
      orphans[#orphans + 1] = id
    end
  end
end
for i = #freed, 1, -1 do offer_places(freed[i]) end
for i = 1, #returning, 2 do come_back(returning[i], returning[i + 1]) end
if #orphans > 0 then wake(k) end
return {orphans, #ids, dead}
