-- Give a message that is not reserved yet another due time; it keeps its id.
-- KEYS b m r z s c k ks g w
-- ARGV id, when ('+n' in n ms, '=n' at epoch ms n)
-- Returns '' when rescheduled; its state when it is too late for that, newer when its
--   record is of a newer version; nothing when there is no such message

local row, record = well_formed(redis.call('HGET', m, ARGV[1])), redis.call('HGET', b, ARGV[1])
if newer(record) then return 'newer' end
record = readable(record)
if not row and not record then return false end
row = row or fresh_row(record)
local state = state_of(row)
if state ~= 'scheduled' and state ~= 'ready' then return state end
local now = now_ms()
local due = tonumber(sub(ARGV[2], 2))
if sub(ARGV[2], 1, 1) == '+' then due = now + due end
if due <= now and state == 'ready' then return '' end
redis.call('LLEN', r)
redis.call('ZCARD', z)
redis.call('HLEN', c)
redis.call('ZCARD', w)
redis.call('LLEN', k)
redis.call('LLEN', ks)
take_out(ARGV[1], row, record, state)
local flags = byte(row, 1)
if has_flag(flags, WAITING) then flags = flags - WAITING end
row = char(flags) .. sub(row, 2, 20) .. NEVER .. sub(row, 27)
-- After a failed attempt it is the next attempt that is due.
local next_attempt = sub(row, 57, 62) ~= NEVER and be6(due) or NEVER
if due <= now then
  redis.call('HSET', m, ARGV[1], sub(row, 1, 38) .. be6(due) .. be6(now) .. sub(row, 51, 56) .. NEVER .. sub(row, 63))
  make_ready(ARGV[1], priority_of(row), now)
  wake(k)
else
  local head = redis.call('ZRANGE', s, 0, 0, 'WITHSCORES')[2]
  redis.call('HSET', m, ARGV[1], sub(row, 1, 38) .. be6(due) .. NEVER .. sub(row, 51, 56) .. next_attempt .. sub(row, 63))
  redis.call('ZADD', s, string.format('%.0f', due), ARGV[1])
  if not head or due < tonumber(head) then wake(ks) end
end
return ''
