-- Forget dead letters for good, all but their ids.
-- KEYS b m x e y c digests id_memory id_memory_before
-- ARGV ms to remember ids at least, most ids in a generation of these; ids
-- Returns ids forgotten

local forgotten = {}
redis.call('HLEN', b)
redis.call('HLEN', digests)
for i = 3, #ARGV do
  local id = ARGV[i]
  if redis.call('ZSCORE', x, id) then forgotten[#forgotten + 1] = id end
end
remember(forgotten, now_ms(), tonumber(ARGV[1]), tonumber(ARGV[2]))
if #forgotten > 0 then
  redis.call('ZREM', x, unpack(forgotten))
  for _, key in ipairs({b, m, e, y}) do redis.call('HDEL', key, unpack(forgotten)) end
end
return forgotten
