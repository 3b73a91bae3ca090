-- Say that a successor waits, and wake whoever idles at a marker.
-- KEYS sw k
-- ARGV ms for which it waits at most

redis.call('SET', sw, 1, 'PX', ARGV[1])
wake(k)
return 1
