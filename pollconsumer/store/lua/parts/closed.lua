-- The type of a key; 'closed' if it has the note of a closed store.
local function kind_of(key)
  local kind = redis.call('TYPE', key).ok
  if kind == 'string' and string.sub(redis.call('GET', key), 1, 7) == 'closed ' then return 'closed' end
  return kind
end
