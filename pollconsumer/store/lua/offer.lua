-- Count anew what is in flight with each concurrency key, and offer the places that are free: the keys of messages in
-- flight may have been counted under other limits, or have vanished with a record that somebody deleted.
-- KEYS b m r z f k g w
-- ARGV most messages in flight to count; with more of them, the counts are trusted
-- Returns messages offered

if redis.call('EXISTS', w) == 0 then return 0 end
redis.call('LLEN', r)
redis.call('ZCARD', z)
redis.call('LLEN', k)
if redis.call('ZCARD', f) <= tonumber(ARGV[1]) then
  local counts = {}
  for _, id in ipairs(redis.call('ZRANGE', f, 0, -1)) do
    local row = well_formed(redis.call('HGET', m, id))
    local record = row and has_flag(byte(row, 1), CONCURRENCY) and readable(redis.call('HGET', b, id))
    if record then
      local _, key = concurrency(record)
      counts[key] = (counts[key] or 0) + 1
    end
  end
  redis.call('DEL', g)
  for key, count in pairs(counts) do redis.call('HSET', g, key, count) end
end
local offered, from = 0, '-'
for _ = 1, 100 do
  local entry = redis.call('ZRANGEBYLEX', w, from, '+', 'LIMIT', 0, 1)[1]
  if not entry then break end
  local key = sub(entry, 1, find(entry, '\0', 1, true) - 1)
  local record = readable(redis.call('HGET', b, sub(entry, #key + 21)))
  local most = record and has_flag(byte(record, 2), CONCURRENCY) and concurrency(record) or 1
  for _ = 1, math.max(record and 0 or 1, most - tonumber(redis.call('HGET', g, key) or 0)) do
    if not offer_place(key, offered, m, r, z, w) then break end
    offered = offered + 1
  end
  from = '[' .. key .. '\1'
end
if offered > 0 then wake(k) end
return offered
