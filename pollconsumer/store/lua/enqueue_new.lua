-- Enqueue one message with a new id, without options, of priority 0, ready at once: the quick form of `enqueue.lua`.
-- KEYS records ready ready_marker
-- NEEDS numbers
-- ARGV what follows the instant in its record, id
-- Returns as `enqueue.lua`. Remembered ids are not looked up
-- The keys are read or written in such an order that a key of another type ends the script with nothing changed.

local record, id = RECORD_BEGINS .. be6(now_ms()) .. ARGV[1], ARGV[2]
local waking = redis.call('LLEN', ready_marker) == 0
redis.call('LLEN', ready)
if redis.call('HSETNX', records, id, record) == 0 then return {id} end  -- GUARD id of one in the store
redis.call('RPUSH', ready, id)
if waking then redis.call('RPUSH', ready_marker, 1) end
return {''}
