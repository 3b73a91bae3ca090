-- Forget completed, cancelled, expired and dead messages beyond the limits, oldest first; and expired results.
-- KEYS records rows completed cancelled expired dead_letters errors checkpoints progress results result_ends counters
-- KEYS id_memory id_memory_before stops
-- NEEDS id_memory
-- ARGV most of each kind to forget now, ms to remember their ids at least, most ids per generation; messages to keep at most
--   of each kind, ms to keep them at most; the same of dead ones (each '' for no limit)
-- Returns messages forgotten

local now, most, forgotten = now_ms(), tonumber(ARGV[1]), 0

local function forget(ids)
  remember(ids, now, tonumber(ARGV[2]), tonumber(ARGV[3]))
  if #ids == 0 then return end
  for _, key in ipairs({rows, records, errors, checkpoints, progress, stops}) do
    if redis.call('HLEN', key) > 0 then redis.call('HDEL', key, unpack(ids)) end
  end
  forgotten = forgotten + #ids
end

-- Before any is removed from a list: a script that fails afterwards would leave it unfindable.
-- EXPECT completed cancelled expired dead_letters errors rows records id_memory counters
local number, ms = tonumber(ARGV[4]), tonumber(ARGV[5])
local horizon = ms and be6(math.max(0, now - ms)) or NEVER
for _, ended in ipairs({completed, cancelled, expired}) do
  local count = number and math.max(0, math.min(most, redis.call('LLEN', ended) - number)) or 0
  local following = redis.call('LINDEX', ended, count)
  if following and sub(following, 1, 6) < horizon then
    for _, entry in ipairs(redis.call('LRANGE', ended, count, most - 1)) do
      if sub(entry, 1, 6) >= horizon then break end
      count = count + 1
    end
  end
  local ids = count > 0 and redis.call('LPOP', ended, count) or {}
  for i = 1, #ids do ids[i] = sub(ids[i], 7) end
  forget(ids)
end
number, ms = tonumber(ARGV[6]), tonumber(ARGV[7])
if number or ms then
  local surplus = number and redis.call('ZCARD', dead_letters) - number or 0
  local entries, ids = redis.call('ZRANGE', dead_letters, 0, most - 1, 'WITHSCORES'), {}
  for i = 1, #entries / 2 do
    if i > surplus and not (ms and tonumber(entries[2 * i]) < now - ms) then break end
    ids[i] = entries[2 * i - 1]
  end
  forget(ids)
  if #ids > 0 then redis.call('ZREM', dead_letters, unpack(ids)) end
end
local lapsed = redis.call('ZRANGEBYSCORE', result_ends, '-inf', now, 'LIMIT', 0, most)
if #lapsed > 0 then
  redis.call('ZREM', result_ends, unpack(lapsed))
  redis.call('HDEL', results, unpack(lapsed))
end
return forgotten
