-- Make a queue known, and tell the mover of it.
-- KEYS queues kq
-- ARGV queue

if redis.call('SADD', queues, ARGV[1]) == 1 then wake(kq) end
return 1
