-- NEEDS places lists
-- Counts of concurrency keys that a step changes. Each is read once, and written once if it has changed.

-- Keys; the counts before the step; how many keys were read; by key the counts now. For a key that was not read: the
-- change.
local counted, stored, known_keys, taken = {}, {}, 0, {}
local returned_keys = {}  -- keys with a place that was offered to a message which must wait for its rate

-- Count that a message with the key begins or ends being in flight.
local function count_place(key, by)
  if not taken[key] then counted[#counted + 1] = key end
  taken[key] = (taken[key] or 0) + by
end

-- Read the counts of keys that were not read before.
local function count_places()
  if known_keys == #counted then return end
  local found, numbers = redis.call('HMGET', places_taken, unpack(counted, known_keys + 1)), {[false] = 0}
  for i = 1, #found do
    local text, key = found[i], counted[known_keys + i]
    local number = numbers[text]
    if not number then
      number = tonumber(text) or 0
      numbers[text] = number
    end
    stored[known_keys + i] = number
    number = number + taken[key]
    taken[key] = number > 0 and number or 0
  end
  known_keys = #counted
end

local function write_places()
  local left, none, at = {}, {}, 0
  for i = 1, known_keys do
    local key = counted[i]
    local number = taken[key]
    if number ~= stored[i] then
      if number > 0 then
        left[at + 1], left[at + 2] = key, number
        at = at + 2
      else
        none[#none + 1] = key
      end
    end
  end
  if at > 2 * FEW then
    left[at + 1], left[at + 2] = LONG, 1
    none[#none + 1] = LONG
  end
  if at > 0 then redis.call('HSET', places_taken, unpack(left)) end  -- GUARD places written
  if #none > 0 then redis.call('HDEL', places_taken, unpack(none)) end
end
