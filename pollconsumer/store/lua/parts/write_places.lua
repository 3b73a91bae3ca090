-- Write the numbers of places that a step has changed.

local left, none, at = {}, {}, 0
for i = 1, #counted do
  local key = counted[i]
  local number = taken[key]
  if number ~= stored[key] then
    if number > 0 then
      left[at + 1], left[at + 2] = key, number
      at = at + 2
    else
      none[#none + 1] = key
    end
  end
end
-- As in a sorted set, a long one keeps a server from searching a list.
if at > 2 * FEW then
  left[at + 1], left[at + 2] = LONG, 1
  none[#none + 1] = LONG
end
if at > 0 then redis.call('HSET', places_taken, unpack(left)) end
if #none > 0 then redis.call('HDEL', places_taken, unpack(none)) end
for i = 1, #given_up do standing = standing + offer_places(given_up[i]) end
