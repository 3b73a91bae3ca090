-- NEEDS rows
-- The value of a unique key is the id of the message that holds it and, if the key expires, a line feed and when. The
-- key begins with a handler's name and a zero if only messages of that handler share it: see core/messages/message.py.

local function unique_key(record)
  return sub(record, RECORD_UNIQUE_KEY + 1, RECORD_UNIQUE_KEY + byte(record, RECORD_UNIQUE_KEY))
end

-- Free the keys of messages, except keys that other messages hold by now.
local function free_keys(ids, keys)
  local held, free, count = redis.call('HMGET', unique_keys, unpack(keys)), {}, 0
  for i = 1, #keys do
    local id, holder = ids[i], held[i]
    if holder and (holder == id or sub(holder, 1, #id + 1) == id .. '\n') then  -- GUARD freed by its holder alone
      count = count + 1
      free[count] = keys[i]
    end
  end
  if count > 0 then redis.call('HDEL', unique_keys, unpack(free)) end
end

-- For a key's stored value: the message that holds the key, if it is unfinished, and its row.
local function holder_of_field(key, now)
  local held = redis.call('HGET', unique_keys, key)
  if not held then return nil end
  local id, lapses = string.match(held, '^([^\n]*)\n?(%d*)')
  if lapses ~= '' and tonumber(lapses) <= now then return nil end  -- GUARD unique key lapses
  local row = redis.call('HGET', rows, id)
  -- GUARD what has ended holds no key
  if row and sub(row, ENDING, ENDING) ~= '\0' or not row and redis.call('HEXISTS', records, id) == 0 then return nil end
  return id, row
end

-- The unfinished message that holds a key. A key of one handler may also be held by a message of that handler without
-- the handler in its key, as earlier versions wrote all keys.
local function holder_of(key, now)
  local holder = holder_of_field(key, now)
  local zero = not holder and find(key, '\0', 1, true)  -- GUARD held for the queue
  if not zero then return holder end
  local id, row = holder_of_field(sub(key, zero + 1), now)
  if not id then return nil end
  local record = not row and readable(redis.call('HGET', records, id))
  row = row or record and fresh_row(record) or ''
  local handler = sub(row, HANDLER, (find(row, '\0', HANDLER, true) or 0) - 1)
  return handler == sub(key, 1, zero - 1) and id or nil  -- GUARD held by another handler
end
