-- Forget completed or cancelled messages beyond what is kept, oldest first; and results whose time is over.
-- KEYS b m ended e y v vx c digests id_memory id_memory_before
-- ARGV messages to keep at most, ms to keep them at most, most messages to forget now; ms to remember their ids at least, most
--   ids in a generation of these
-- Returns messages forgotten

local now = now_ms()
local length = redis.call('LLEN', ended)
redis.call('HLEN', e)
redis.call('HLEN', digests)
local surplus = math.max(0, length - tonumber(ARGV[1]))
local most = tonumber(ARGV[3])
local entries = redis.call('LRANGE', ended, 0, most - 1)
local horizon = be6(math.max(0, now - tonumber(ARGV[2])))
local ids = {}
for i = 1, #entries do
  if i > surplus and sub(entries[i], 1, 6) >= horizon then break end
  ids[i] = sub(entries[i], 7)
end
remember(ids, now, tonumber(ARGV[4]), tonumber(ARGV[5]))
if #ids > 0 then
  redis.call('LPOP', ended, #ids)
  redis.call('HDEL', m, unpack(ids))
  redis.call('HDEL', b, unpack(ids))
  redis.call('HDEL', e, unpack(ids))
  redis.call('HDEL', y, unpack(ids))
end
local lapsed = redis.call('ZRANGEBYSCORE', vx, '-inf', now, 'LIMIT', 0, most)
if #lapsed > 0 then
  redis.call('ZREM', vx, unpack(lapsed))
  redis.call('HDEL', v, unpack(lapsed))
end
return #ids
