-- Count anew what is in flight with each concurrency key, and offer the places that are free: messages in flight may have
-- vanished with a record that somebody deleted, and with them the word that they have left.
-- KEYS b m r z f c k g w
-- ARGV most messages in flight to count, above which the counts are trusted; most keys to look at
-- Returns messages offered
-- Where there are more keys than that, any run of them is looked at: sooner or later all are.

local standing = redis.call('ZCARD', w)
if standing == 0 then return 0 end
redis.call('LLEN', r)
redis.call('ZCARD', z)
redis.call('HLEN', c)
redis.call('LLEN', k)
redis.call('HLEN', g)
if redis.call('ZCARD', f) <= tonumber(ARGV[1]) then
  local counts = {}
  for _, id in ipairs(redis.call('ZRANGE', f, 0, -1)) do
    local row = well_formed(redis.call('HGET', m, id))
    if row and has_flag(byte(row, 1), CONCURRENCY) then
      local _, key = concurrency(readable(redis.call('HGET', b, id)))
      if key then counts[key] = (counts[key] or 0) + 1 end
    end
  end
  redis.call('DEL', g)
  for key, count in pairs(counts) do redis.call('HSET', g, key, count) end
end
local keys, from, offered = tonumber(ARGV[2]), '-', 0
if standing > keys then
  local any = redis.call('ZRANGE', w, now_ms() % standing, now_ms() % standing)[1]
  from = any and '[' .. sub(any, 1, (find(any, '\0', 1, true) or 1) - 1) or from
end
for _ = 1, keys do
  local entry = redis.call('ZRANGEBYLEX', w, from, '+', 'LIMIT', 0, 1)[1]
  if not entry then
    if from == '-' or standing <= keys then break end
    standing, from = 0, '-'
  else
    local key = sub(entry, 1, (find(entry, '\0', 1, true) or #entry + 1) - 1)
    offered = offered + offer_places(key)
    from = '[' .. key .. '\1'
  end
end
if offered > 0 then wake(k) end
return offered
