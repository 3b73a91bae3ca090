-- NEEDS numbers

-- Ids of forgotten messages, each with its digest or '', are kept in the younger of two generations. The older one is
-- dropped when the younger is old enough or full.
local function remember(ids, now, lasts, most)
  local size, before = redis.call('HLEN', id_memory), redis.call('HLEN', id_memory_before)
  local began = tonumber(redis.call('HGET', counters, 'id memory began') or 0) or 0
  local over = now - began >= lasts or size >= most
  if over and size + before > 0 then
    redis.call('UNLINK', id_memory_before)
    if size > 0 then redis.call('RENAME', id_memory, id_memory_before) end
  end
  if over or now < began then redis.call('HSET', counters, 'id memory began', now) end
  if #ids == 0 then return end
  local digested = redis.call('HLEN', digests) > 0 and redis.call('HMGET', digests, unpack(ids))
  local remembered = {}
  for i = 1, #ids do
    remembered[2 * i - 1], remembered[2 * i] = ids[i], digested and digested[i] or ''
  end
  redis.call('HSET', id_memory, unpack(remembered))
  if digested then redis.call('HDEL', digests, unpack(ids)) end
end
