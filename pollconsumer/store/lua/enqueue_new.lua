-- Accept one message with a new id that is ready at once: of priority 0, without a unique key. Hot path of `enqueue.lua`.
-- KEYS records ready ready_marker
-- NEEDS numbers
-- ARGV id, record without its instant
-- Returns '' if it is new, else its id. An id of the queue's records is not accepted again; forgotten ids are not looked up
-- The caller's first message was accepted by `enqueue.lua`, which refuses a `ready` of another type. Should that change later,
-- the record is written and its id in no list, which `audit.lua` repairs. The other keys are read before, or written first.

local waking = redis.call('LLEN', ready_marker) == 0
local record = sub(ARGV[2], 1, 4) .. be6(now_ms()) .. sub(ARGV[2], 5)
if redis.call('HSETNX', records, ARGV[1], record) == 0 then return ARGV[1] end  -- GUARD id in the store
redis.call('RPUSH', ready, ARGV[1])
if waking then redis.call('RPUSH', ready_marker, 1) end
return ''
