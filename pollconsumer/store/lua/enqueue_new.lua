-- Accept messages with new ids, of one handler, that are ready at once: of priority 0, without a unique key. All of them, or
-- none. Hot path of `enqueue.lua`.
-- KEYS records ready ready_marker
-- NEEDS numbers
-- ARGV of one, which may have a rate or an expiry: record without its instant, id; of several, without options: their record
--   without its instant and the payload; for each: id, payload
-- Returns ''; with none accepted, an id that the queue's records have. Forgotten ids are not looked up
-- Each key is read or written first in an order in which one of another type is refused with nothing changed; but for the
-- `ready` of one message, whose producer's first was accepted by `enqueue.lua`. Should that change later, the record is
-- written and its id in no list, which `repair.lua` repairs.

local waking = redis.call('LLEN', ready_marker) == 0
local head, id = sub(ARGV[1], 1, 4) .. be6(now_ms()) .. sub(ARGV[1], 5), ARGV[2]
if not ARGV[3] then
  if redis.call('HSETNX', records, id, head) == 0 then return id end  -- GUARD id of one in the store
  redis.call('RPUSH', ready, id)
else
  -- EXPECT ready
  local ids, new_records = {}, {}
  for at = 2, #ARGV, 2 do
    ids[at / 2] = ARGV[at]
    new_records[at - 1], new_records[at] = ARGV[at], head .. ARGV[at + 1]
  end
  local found = redis.call('HMGET', records, unpack(ids))
  for i = 1, #ids do
    if found[i] then return ids[i] end  -- GUARD id of several in the store
  end
  redis.call('HSET', records, unpack(new_records))
  redis.call('RPUSH', ready, unpack(ids))
end
if waking then redis.call('RPUSH', ready_marker, 1) end
return ''
