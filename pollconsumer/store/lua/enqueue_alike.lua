-- Accept messages with new ids, of one handler, that are ready at once: of priority 0, without options. Hot path of
-- `enqueue.lua`. All of them, or none.
-- KEYS records ready ready_marker
-- NEEDS numbers
-- ARGV their record without its instant and the payload; for each: id, payload
-- Returns ''; with none accepted, an id that the queue's records have. Forgotten ids are not looked up
-- Each key is read before the first write: one of another type is refused with nothing changed.

local waking = redis.call('LLEN', ready_marker) == 0
-- EXPECT ready
local head = sub(ARGV[1], 1, 4) .. be6(now_ms()) .. sub(ARGV[1], 5)
local ids, new_records = {}, {}
for at = 2, #ARGV, 2 do
  ids[at / 2] = ARGV[at]
  new_records[at - 1], new_records[at] = ARGV[at], head .. ARGV[at + 1]
end
local found = redis.call('HMGET', records, unpack(ids))
for i = 1, #ids do
  if found[i] then return ids[i] end  -- GUARD id in the store
end
redis.call('HSET', records, unpack(new_records))
redis.call('RPUSH', ready, unpack(ids))
if waking then redis.call('RPUSH', ready_marker, 1) end
return ''
