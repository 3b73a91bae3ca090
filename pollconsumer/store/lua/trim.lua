-- Forget completed or cancelled messages beyond the limits, oldest first; and expired results.
-- KEYS records rows ended errors checkpoints results result_ends counters digests id_memory id_memory_before
-- NEEDS types id_memory
-- ARGV messages to keep at most, ms to keep them at most, most messages to forget now; ms to remember their ids at least,
--   most ids per generation
-- Returns messages forgotten

local now = now_ms()
local length = redis.call('LLEN', ended)
expect('HLEN', errors, digests)
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
  redis.call('HDEL', rows, unpack(ids))
  redis.call('HDEL', records, unpack(ids))
  redis.call('HDEL', errors, unpack(ids))
  redis.call('HDEL', checkpoints, unpack(ids))
end
local lapsed = redis.call('ZRANGEBYSCORE', result_ends, '-inf', now, 'LIMIT', 0, most)
if #lapsed > 0 then
  redis.call('ZREM', result_ends, unpack(lapsed))
  redis.call('HDEL', results, unpack(lapsed))
end
return #ids
