-- A queue's limits, as the room that they leave in a step.

-- The rest of a quota, and ms until there is more once it is used up. A period is counted in sixtieths, each of which counts
-- until all of it is past: no span of that length exceeds the quota.
local function left_of_quota(quota, period, sixtieth)
  local spent, used, oldest = redis.call('HGETALL', handed_out), 0, (floor(now / sixtieth) + 1) * sixtieth
  for i = 1, #spent, 2 do
    local ends = ((whole(spent[i]) and tonumber(spent[i]) or -1) + 1) * sixtieth
    -- GUARD counts of a quota that are none
    if ends <= now - period or ends > now + period or not whole(spent[i + 1]) then
      redis.call('HDEL', handed_out, spent[i])
    else
      used = used + tonumber(spent[i + 1])
      oldest = math.min(oldest, ends)
    end
  end
  return quota - used, math.max(1, math.ceil(oldest + period - now))
end

-- Optional numbers: most in flight, most handed out in a period, its ms. A rate follows, see `rates.lua`.
local most, quota, period = string.match(limits, '^(%d*) (%d*) (%d*) ')
if most ~= '' then room = tonumber(most) - redis.call('ZCARD', in_flight) end  -- GUARD most in flight
if quota ~= '' then
  sixtieth = math.max(1, tonumber(period) / 60)
  left, left_in = left_of_quota(tonumber(quota), tonumber(period), sixtieth)
  room = math.min(room, left)
end
wanted = math.max(0, math.min(wanted, room))
