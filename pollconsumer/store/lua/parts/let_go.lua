-- What settled messages held: charges of rates, unique keys, places; and those released return to their queue.

if #uncharged > 0 and redis.call('EXISTS', rates) == 1 then
-- PART refunds
end
if #keyed > 0 then
  local found, unique, freed = redis.call('HMGET', records, unpack(keyed)), {}, {}
  for i = 1, #keyed do
    local id, record = keyed[i], readable(found[i])
    if record then
      local flags, _, key = byte(record, RECORD_FLAGS)
      if has_ended[id] and has_flag(flags, UNIQUE) then unique[#unique + 1], unique[#unique + 2] = id, record end
      if has_flag(flags, CONCURRENCY) then
        _, key = concurrency(record)
        freed[#freed + 1] = key
      end
    end
  end
  if #unique > 0 then free_keys(unique) end
  if #freed > 0 then
    free_places(freed)
    -- After all are freed, in the order of the line.
    local offered = redis.call('ZCARD', waiting_for_place) > 0 and {}
    for i = offered and #freed or 0, 1, -1 do
      if not offered[freed[i]] then offer_places(freed[i]) end
      offered[freed[i]] = true
    end
  end
  if #dropped > 0 then redis.call('HDEL', records, unpack(dropped)) end
end
for i = 1, #released, 2 do return_to_queue(released[i], released[i + 1]) end
