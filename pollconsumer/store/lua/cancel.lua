-- End a message that is not reserved yet.
-- KEYS b m r z s u c dx p g w y k
-- ARGV id
-- Returns '' when cancelled; its state when it is too late for that, newer when its
--   record is of a newer version; nothing when there is no such message

local row, record = well_formed(redis.call('HGET', m, ARGV[1])), redis.call('HGET', b, ARGV[1])
if newer(record) then return 'newer' end
record = readable(record)
if not row and not record then return false end
row = row or fresh_row(record)
local state = state_of(row)
if state ~= 'scheduled' and state ~= 'ready' then return state end
redis.call('LLEN', dx)
redis.call('LLEN', r)
redis.call('ZCARD', z)
redis.call('HLEN', c)
redis.call('ZCARD', w)
redis.call('LLEN', k)
take_out(ARGV[1], row, record, state)
local flags, stamp = byte(row, 1), be6(now_ms())
if has_flag(flags, WAITING) then flags = flags - WAITING end
if has_flag(flags, PARKED) then
  redis.call('SREM', p, ARGV[1])
  flags = flags - PARKED
end
if has_flag(flags, UNIQUE) and record then free_key(ARGV[1], record) end
if has_flag(flags, LARGE) then redis.call('HDEL', b, ARGV[1]) end
if has_flag(flags, CHECKPOINT) then redis.call('HDEL', y, ARGV[1]) end
redis.call('HSET', m, ARGV[1], char(flags) .. 'x' .. sub(row, 3, 20) .. NEVER .. stamp .. sub(row, 33))
redis.call('RPUSH', dx, stamp .. ARGV[1])
return ''
