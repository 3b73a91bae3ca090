-- Replace the recurrences that one owner, a group of launches, defines in a queue. A recurrence is kept while it has an
-- owner; when one removes it, an owner that has not launched for a day does not count. An unchanged recurrence goes on.
-- A new or changed one begins with its first instant from now on; an occurrence that is due already stays due. A
-- definition that comes back within an hour goes on as it was, since launches of two versions may alternate. A
-- recurrence that was put at run time is not touched. Recurrences that the owner does not define are not read.
-- KEYS recurrences next_instants recurrence_counters schedule_marker recurrence_owners recurrence_owners_seen
-- KEYS recurrences_of_owners recurrences_replaced recurrences_unreadable recurrences_ended
-- NEEDS recurrences
-- ARGV owner; for each: name, definition as JSON, first instant in epoch ms ('' for none)
-- Returns names removed, each with its due instant or ''; names whose definitions came back more than once; names that
--   were put at run time

local GOES_ON_MS, ABSENT_MS = 3600000, 86400000
local owner, now = ARGV[1], now_ms()
-- EXPECT recurrences recurrence_counters recurrence_owners recurrence_owners_seen recurrences_of_owners recurrences_replaced
-- EXPECT next_instants recurrences_unreadable recurrences_ended schedule_marker
local removed, contested, taken, named, names = {}, {}, {}, {}, {}

-- For each replaced definition: its next instant ('' for none), when it was replaced, how often.
local function replaced(name, definition)
  local held = redis.call('HGET', recurrences_replaced, name .. '\n' .. definition)
  local following, at, times = string.match(held or '', '^(%d*) (%d+) (%d+)$')
  if not at or tonumber(at) < now - GOES_ON_MS then return nil end  -- GUARD replaced within the hour
  return tonumber(following), tonumber(times)
end

local function keep_replaced(name, definition, following)
  local _, times = replaced(name, definition)
  local value = (following and decimal(following) or '') .. ' ' .. decimal(now) .. ' '
    .. ((times or 0) + 1)
  redis.call('HSET', recurrences_replaced, name .. '\n' .. definition, value)
  redis.call('PEXPIRE', recurrences_replaced, GOES_ON_MS)  -- GUARD replaced ones lapse
end

redis.call('HSET', recurrence_owners_seen, owner, decimal(now))
local seen = redis.call('HGETALL', recurrence_owners_seen)
local present = {}
for i = 1, #seen, 2 do
  present[seen[i]] = (tonumber(seen[i + 1]) or 0) > now - ABSENT_MS  -- GUARD absent after a day
  if not present[seen[i]] then
    redis.call('HDEL', recurrence_owners_seen, seen[i])
    redis.call('HDEL', recurrences_of_owners, seen[i])
  end
end

-- The names that the owner defined when it last launched, even if it does not own them any more. They are unknown if
-- the owner was absent, or its last launch was of a version without this key: then all that it owns are checked.
local before_this, listed = {}, redis.call('HGET', recurrences_of_owners, owner)
for name in string.gmatch(listed or '', '[^\n]+') do before_this[#before_this + 1] = name end
-- GUARD names that a version before did not keep
local owned = listed and {} or redis.call('HGETALL', recurrence_owners)
for i = 1, #owned, 2 do before_this[#before_this + 1] = owned[i] end

for i = 2, #ARGV, 3 do
  local name, definition, first = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
  local held = redis.call('HGET', recurrences, name)
  named[name], names[#names + 1] = true, name
  if held and sub(held, 1, #PUT) == PUT then  -- GUARD one that was put
    taken[#taken + 1] = name
  else
    local owners = redis.call('HGET', recurrence_owners, name) or '\n'
    if not find(owners, '\n' .. owner .. '\n', 1, true) then  -- GUARD one owner more; one owner more, by its whole name
      redis.call('HSET', recurrence_owners, name, owners .. owner .. '\n')
    end
    local due = next_instant(name)
    if held ~= definition then  -- GUARD one that is as it was goes on
      local following, times = replaced(name, definition)
      if times and times > 1 then contested[#contested + 1] = name end  -- GUARD contested from the second time
      if held then keep_replaced(name, held, due) end
      redis.call('HSET', recurrences, name, definition)
      local instant, before = first, nil
      if instant and following and following < instant then instant = following end  -- GUARD what was replaced goes on
      if instant and held and due and due <= now and due < instant then  -- GUARD an instant to come is not due
        -- GUARD what is due stays due; what is due by the definition before
        before, instant = due_by(name, held, now, instant), due
      end
      begin(name, instant, before)
    -- GUARD one that stands still; what stands before its first instant
    elseif first and first > now and (not due or due > first) then
      begin(name, first)
    end
  end
end
redis.call('HSET', recurrences_of_owners, owner, table.concat(names, '\n'))
for i = 1, #before_this do
  local name = before_this[i]
  local owners = not named[name] and redis.call('HGET', recurrence_owners, name) or ''  -- GUARD what is named stays
  if find(owners, '\n' .. owner .. '\n', 1, true) then  -- GUARD owners by whole names; removed by its owner alone
    local others = '\n'  -- that count: a group whose set of queues changes gets another name
    for other in string.gmatch(owners, '[^\n]+') do
      -- GUARD an absent owner keeps nothing
      if other ~= owner and present[other] then others = others .. other .. '\n' end
    end
    if others ~= '\n' then  -- GUARD another owner keeps it
      redis.call('HSET', recurrence_owners, name, others)
    else
      local due, definition = next_instant(name), redis.call('HGET', recurrences, name)
      if definition then keep_replaced(name, definition, due) end
      redis.call('HDEL', recurrence_owners, name)
      forget_recurrence(name)
      removed[#removed + 1], removed[#removed + 2] = name, due and due <= now and decimal(due) or ''
    end
  end
end
return {removed, contested, taken}
