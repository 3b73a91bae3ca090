-- End a message that is not reserved yet.
-- KEYS b m r z s u c dx p w y k
-- ARGV id
-- Returns '' when cancelled; its state when it is too late for that; nothing when there is no such message

local row, record = well_formed(redis.call('HGET', m, ARGV[1])), readable(redis.call('HGET', b, ARGV[1]))
if not row and not record then return false end
row = row or fresh_row(record)
local state = state_of(row)
if state ~= 'scheduled' and state ~= 'ready' then return state end
redis.call('LLEN', dx)
redis.call('LLEN', r)
redis.call('LLEN', k)
take_out(ARGV[1], row, record, state, m, r, z, s, c, w)
local flags, stamp = byte(row, 1), be6(now_ms())
if has_flag(flags, PARKED) then redis.call('SREM', p, ARGV[1]) end
if has_flag(flags, UNIQUE) and record then free_key(ARGV[1], record, u) end
if has_flag(flags, LARGE) then redis.call('HDEL', b, ARGV[1]) end
if has_flag(flags, CHECKPOINT) then redis.call('HDEL', y, ARGV[1]) end
if has_flag(flags, CONCURRENCY) and redis.call('LLEN', r) > 0 then wake(k) end
redis.call('HSET', m, ARGV[1], sub(row, 1, 1) .. 'x' .. sub(row, 3, 20) .. NEVER .. stamp .. sub(row, 33))
redis.call('RPUSH', dx, stamp .. ARGV[1])
return ''
