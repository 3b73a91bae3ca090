-- Write a key that marks something for a time. A script, since a full server refuses SET.
-- KEYS presence
--   (or `replicated`, of a queue or of the namespace; or `closing`)
-- ARGV ms for which the key lasts

return redis.call('SET', presence, 1, 'PX', ARGV[1])
