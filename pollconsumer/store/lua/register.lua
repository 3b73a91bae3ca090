-- Make a queue known, and tell the mover of it; unless the caller lacks a right to what it is about to do there.
-- KEYS queues queues_marker
-- NEEDS rights markers
-- ARGV queue, a key of it, commands that the caller is about to use
-- Returns those that the caller may not use; none when the queue is known

local lacking = lacking_rights(ARGV[2], 3)
if #lacking == 0 and redis.call('SADD', queues, ARGV[1]) == 1 then wake(queues_marker) end
return lacking
