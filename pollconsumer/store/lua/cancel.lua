-- End a message that is not reserved yet.
-- KEYS b m r z s u c dx p
-- ARGV id
-- Returns '' when cancelled; its state when it is too late for that; nothing when there is no such message

local row, record = well_formed(redis.call('HGET', m, ARGV[1])), readable(redis.call('HGET', b, ARGV[1]))
if not row and not record then return false end
row = row or fresh_row(record)
local state = state_of(row)
if state ~= 'scheduled' and state ~= 'ready' then return state end
redis.call('LLEN', dx)
take_out(ARGV[1], row, state, s, z, c)
local flags, stamp = byte(row, 1), be6(now_ms())
if has_flag(flags, 4) then redis.call('SREM', p, ARGV[1]) end
if has_flag(flags, 2) and record then
  local key = sub(record, 12, 11 + byte(record, 11))
  if redis.call('HGET', u, key) == ARGV[1] then redis.call('HDEL', u, key) end
end
if has_flag(flags, 1) then redis.call('HDEL', b, ARGV[1]) end
redis.call('HSET', m, ARGV[1], sub(row, 1, 1) .. 'x' .. sub(row, 3, 26) .. stamp .. sub(row, 33))
redis.call('RPUSH', dx, stamp .. ARGV[1])
return ''
