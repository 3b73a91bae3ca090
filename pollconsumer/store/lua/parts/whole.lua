-- NEEDS numbers

-- Whether a stored value is an integer of six bytes, and not corrupt.
local function whole(text)
  return text and #text < 16 and find(text, '^%d+$') ~= nil and tonumber(text) < 281474976710656
end
