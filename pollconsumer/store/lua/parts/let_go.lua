-- What settled messages held: charges of rates, unique keys, places; and those released return to their queue.

if #uncharged > 0 and redis.call('EXISTS', rates) == 1 then
-- PART refunds
end
if #unique > 0 then free_keys(holders, unique) end
if #freed > 0 and (#released > 0 or redis.call('ZCARD', waiting_for_place) > 0) then
  free_places(freed)
  -- After all are freed, in the order of the line.
  local offered = {}
  for i = #freed, 1, -1 do
    if not offered[freed[i]] then offer_places(freed[i]) end
    offered[freed[i]] = true
  end
elseif #freed > 0 then
  count_places(freed)  -- to be written once it is known which are taken again
  for i = 1, #freed do
    local key = freed[i]
    if taken[key] > 0 then taken[key] = taken[key] - 1 end
  end
end
if #dropped > 0 then redis.call('HDEL', records, unpack(dropped)) end
for i = 1, #released, 2 do return_to_queue(released[i], released[i + 1]) end
