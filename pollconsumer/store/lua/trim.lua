-- Forget completed, cancelled or expired messages beyond the limits, oldest first; and expired results.
-- KEYS records rows completed cancelled expired errors checkpoints progress results result_ends counters id_memory
-- KEYS id_memory_before
-- NEEDS id_memory
-- ARGV messages to keep at most of each kind, ms to keep them at most, most of each to forget now; ms to remember their
--   ids at least, most ids per generation
-- Returns messages forgotten

local now, most, forgotten = now_ms(), tonumber(ARGV[3]), 0
local horizon = be6(math.max(0, now - tonumber(ARGV[2])))
-- EXPECT completed cancelled expired errors
for _, ended in ipairs({completed, cancelled, expired}) do
  local surplus = redis.call('LLEN', ended) - tonumber(ARGV[1])
  local entries, ids = redis.call('LRANGE', ended, 0, most - 1), {}
  for i = 1, #entries do
    if i > surplus and sub(entries[i], 1, 6) >= horizon then break end
    ids[i] = sub(entries[i], 7)
  end
  remember(ids, now, tonumber(ARGV[4]), tonumber(ARGV[5]))
  if #ids > 0 then
    redis.call('LPOP', ended, #ids)
    for _, key in ipairs({rows, records, errors, checkpoints, progress}) do
      if redis.call('HLEN', key) > 0 then redis.call('HDEL', key, unpack(ids)) end
    end
  end
  forgotten = forgotten + #ids
end
local lapsed = redis.call('ZRANGEBYSCORE', result_ends, '-inf', now, 'LIMIT', 0, most)
if #lapsed > 0 then
  redis.call('ZREM', result_ends, unpack(lapsed))
  redis.call('HDEL', results, unpack(lapsed))
end
return forgotten
