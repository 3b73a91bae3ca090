-- Forget completed or cancelled messages beyond what is kept, oldest first.
-- KEYS b m ended e
-- ARGV messages to keep at most, ms to keep them at most, most messages to forget now
-- Returns messages forgotten

local length = redis.call('LLEN', ended)
redis.call('HLEN', e)
local surplus = math.max(0, length - tonumber(ARGV[1]))
local most = tonumber(ARGV[3])
local entries = redis.call('LRANGE', ended, 0, most - 1)
local horizon = be6(math.max(0, now_ms() - tonumber(ARGV[2])))
local ids = {}
for i = 1, #entries do
  if i > surplus and sub(entries[i], 1, 6) >= horizon then break end
  ids[i] = sub(entries[i], 7)
end
if #ids > 0 then
  redis.call('LPOP', ended, #ids)
  redis.call('HDEL', m, unpack(ids))
  redis.call('HDEL', b, unpack(ids))
  redis.call('HDEL', e, unpack(ids))
end
return #ids
