-- Record a queue in the namespace, and wake the mover, unless the caller lacks a right.
-- KEYS queues queues_marker
-- NEEDS rights markers
-- ARGV queue, one of its keys, commands that the caller will use
-- Returns the commands that the caller may not use

local lacking = lacking_rights(ARGV[2], 3)
-- GUARD rights before a queue is known
if #lacking == 0 and redis.call('SADD', queues, ARGV[1]) == 1 then wake(queues_marker) end
return lacking
