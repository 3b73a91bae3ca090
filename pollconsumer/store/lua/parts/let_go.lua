-- What settled messages held: unique keys, places, large records; and those released return to their queue.

if #unique > 0 then free_keys(holders, unique) end  -- GUARD unique key freed at the end
-- Places are written once it is known which are taken again, unless they are to be offered.
if #counted > 0 and (#released > 0 or redis.call('ZCARD', waiting_for_place) > 0) then
  count_places()  -- GUARD places given back to those in line
  write_places()  -- GUARD places given back to those in line
  for i = #counted, 1, -1 do offer_places(counted[i]) end
  counted, stored, known_keys, taken = {}, {}, 0, {}
end
if #dropped > 0 then redis.call('HDEL', records, unpack(dropped)) end
for i = 1, #released, 2 do return_to_queue(released[i], released[i + 1]) end
