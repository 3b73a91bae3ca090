-- NEEDS rows
-- A unique key maps to the id that holds it, followed by a line feed and the instant at which it expires, if it does.

local function unique_key(record)
  return sub(record, RECORD_UNIQUE_KEY + 1, RECORD_UNIQUE_KEY + byte(record, RECORD_UNIQUE_KEY))
end

local function free_key(id, record)
  local key = unique_key(record)
  local held = redis.call('HGET', unique_keys, key)
  if held and (held == id or sub(held, 1, #id + 1) == id .. '\n') then redis.call('HDEL', unique_keys, key) end
end

-- The unfinished message that holds a key.
local function holder_of(key, now)
  local held = redis.call('HGET', unique_keys, key)
  if not held then return nil end
  local id, lapses = string.match(held, '^([^\n]*)\n?(%d*)')
  if lapses ~= '' and tonumber(lapses) <= now then return nil end
  local row = redis.call('HGET', rows, id)
  if row and sub(row, ENDING, ENDING) ~= '\0' or not row and redis.call('HEXISTS', records, id) == 0 then return nil end
  return id
end
