-- NEEDS numbers

-- Whether a stored value is a whole number that a row can hold; another program may have written anything.
local function whole(text)
  return text and #text < 16 and find(text, '^%d+$') ~= nil and tonumber(text) < 281474976710656
end
