-- Recount messages in flight with each concurrency key, and offer free places. A count is lost with a record that
-- another program deletes.
-- KEYS records rows ready ready_by_priority in_flight counters ready_marker places_taken waiting_for_place order_heads
-- NEEDS places
-- ARGV most messages in flight to count, above which the counts are trusted; most keys to examine
-- Returns messages offered
-- If there are more keys, a random run of them is examined.

local line_length = redis.call('ZCARD', waiting_for_place)
if line_length == 0 then return 0 end
-- EXPECT ready ready_marker counters places_taken ready_by_priority
if redis.call('ZCARD', in_flight) <= tonumber(ARGV[1]) then
  local counts = {}
  for _, id in ipairs(redis.call('ZRANGE', in_flight, 0, -1)) do
    local row = well_formed(redis.call('HGET', rows, id))
    if row and has_flag(byte(row, FLAGS), CONCURRENCY) then
      -- A newer version's message takes its place, too: whatever flags follow, letter C has its keys where others have them.
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
