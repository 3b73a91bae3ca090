-- Accept one message without options, of priority 0, with a new id, which is ready at once. The quick way of
-- `enqueue.lua`.
-- KEYS records ready ready_marker
-- NEEDS numbers
-- ARGV what follows the instant in its record, id
-- Returns as `enqueue.lua`. Forgotten ids are not looked up
-- Each key is read or written first in such an order that one of another type is refused with nothing changed.

local record, id = RECORD_BEGINS .. be6(now_ms()) .. ARGV[1], ARGV[2]
local waking = redis.call('LLEN', ready_marker) == 0
redis.call('LLEN', ready)
if redis.call('HSETNX', records, id, record) == 0 then return {id} end  -- GUARD id of one in the store
redis.call('RPUSH', ready, id)
if waking then redis.call('RPUSH', ready_marker, 1) end
return {''}
