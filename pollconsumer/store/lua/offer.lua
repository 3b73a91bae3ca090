-- Recount the messages in flight of each concurrency key, and let others begin if there is room. Counts are wrong after
-- another program has deleted a record.
-- KEYS records rows ready ready_by_priority in_flight counters ready_marker places_taken waiting_for_place order_heads
-- NEEDS places
-- ARGV with more messages in flight than this, the counts are trusted; maximum number of keys to examine
-- Returns how many messages may begin
-- If there are more keys, those from a random one on are examined.

local line_length = redis.call('ZCARD', waiting_for_place)
if line_length == 0 then return 0 end
-- EXPECT ready ready_marker counters places_taken ready_by_priority
if redis.call('ZCARD', in_flight) <= tonumber(ARGV[1]) then
  local counts = {}
  for _, id in ipairs(redis.call('ZRANGE', in_flight, 0, -1)) do
    local row = well_formed(redis.call('HGET', rows, id))
    if row and has_flag(byte(row, FLAGS), CONCURRENCY) then
      -- A newer version's message counts, too: whatever flags it has, a record of letter C has its keys at the same
      -- offsets.
      local record = redis.call('HGET', records, id)
      -- GUARD places of a newer version
      local _, key = concurrency(byte(record or '', RECORD_VERSION) == FLAGGED_VERSION and record or readable(record))
      if key then counts[key] = (counts[key] or 0) + 1 end
    end
  end
  redis.call('DEL', places_taken)
  for key, count in pairs(counts) do redis.call('HSET', places_taken, key, count) end
end
local keys, from, offered = tonumber(ARGV[2]), '-', 0
if line_length > keys then
  local any = redis.call('ZRANGE', waiting_for_place, now_ms() % line_length, now_ms() % line_length)[1]
  from = any and '[' .. sub(any, 1, (find(any, '\0', 1, true) or 1) - 1) or from
end
for _ = 1, keys do
  local entry = redis.call('ZRANGEBYLEX', waiting_for_place, from, '+', 'LIMIT', 0, 1)[1]
  if not entry then
    if from == '-' or line_length <= keys then break end
    line_length, from = 0, '-'
  else
    local key = sub(entry, 1, (find(entry, '\0', 1, true) or #entry + 1) - 1)
    offered = offered + offer_places(key)
    from = '[' .. key .. '\1'
  end
end
if offered > 0 then wake(ready_marker) end
return offered
