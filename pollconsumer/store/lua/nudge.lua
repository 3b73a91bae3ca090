-- Record that a successor waits, and wake an idle consumer.
-- KEYS successor_waits ready_marker
-- NEEDS markers
-- ARGV ms for which it waits at most, the newest fence of the holders that it calls

redis.call('SET', successor_waits, ARGV[2], 'PX', ARGV[1])
wake(ready_marker)
return 1
