-- NEEDS rows

-- The digest of a message that has ended or died. The record of a large one is not read.
local function last_digest_of(id, row)
  local large = row and has_flag(byte(row, FLAGS) or 0, LARGE)
  return digest_of(row, not large and redis.call('HGET', records, id))
end

-- Ids of forgotten messages are kept in the younger of two generations. The older one is dropped when the younger is old
-- enough or full.
local function age_ids(now, lasts, most)
  local size, before = redis.call('HLEN', id_memory), redis.call('HLEN', id_memory_before)
  local began = tonumber(redis.call('HGET', counters, 'id memory began') or 0) or 0
  local over = now - began >= lasts or size >= most
  if over and size + before > 0 then
    redis.call('UNLINK', id_memory_before)
    if size > 0 then redis.call('RENAME', id_memory, id_memory_before) end
  end
  if over or now < began then redis.call('HSET', counters, 'id memory began', now) end
end

-- Keep ids, each with its message's digest or ''; before the messages are removed.
local function remember(ids)
  local found_rows = redis.call('HEXISTS', counters, 'ids chosen') == 1 and redis.call('HMGET', rows, unpack(ids))
  local remembered = {}
  for i = 1, #ids do
    remembered[2 * i - 1], remembered[2 * i] = ids[i], found_rows and last_digest_of(ids[i], found_rows[i]) or ''
  end
  redis.call('HSET', id_memory, unpack(remembered))
end
