-- Wake the heartbeat of a launch, which then reads the paused handlers. A script, since a full server refuses RPUSH.
-- KEYS stop_marker
-- NEEDS markers
-- ARGV ms after which the marker expires

wake(stop_marker)
return redis.call('PEXPIRE', stop_marker, ARGV[1])
