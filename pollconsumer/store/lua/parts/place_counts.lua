-- NEEDS places
-- Places of concurrency keys that a step frees and takes: read once for each key, and written once, if their number differs.

local counted, stored, taken = {}, {}, {}  -- keys; places taken by key, before the step and now
local given_up = {}  -- keys with a place that was offered to a message which must wait for its rate

-- Read the numbers of `keys`, in which a key may repeat.
local function count_places(keys)
  local unknown, count = {}, 0
  for i = 1, #keys do
    local key = keys[i]
    if not stored[key] then
      count = count + 1
      unknown[count], stored[key] = key, 0
    end
  end
  if count == 0 then return end
  local found, numbers, before = redis.call('HMGET', places_taken, unpack(unknown)), {[false] = 0}, #counted
  for i = 1, count do
    local text, key = found[i], unknown[i]
    local number = numbers[text]
    if not number then
      number = tonumber(text) or 0
      numbers[text] = number
    end
    stored[key], taken[key], counted[before + i] = number, number, key
  end
end
