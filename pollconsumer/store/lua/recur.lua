-- Enqueue occurrences of a recurrence and set when it is due next: both or neither, whoever else tries.
-- KEYS b m r z c n nz nc t k id_memory id_memory_before
-- ARGV lineage, fence, name, instant that was due, next instant ('' for none), occurrences skipped,
--   1 when none may be enqueued while the one before is unfinished; for each: id, instant, record less scheduled
-- Returns occurrences enqueued; -1 when another instant is due by now
-- Refusals: FENCED, FORGOTTEN

local refusal = not_ours(ARGV[1], ARGV[2])
if refusal then return refusal end
local name = ARGV[3]
local due = redis.call('ZSCORE', nz, name)
if not due or tonumber(due) ~= tonumber(ARGV[4]) or not redis.call('HGET', n, name) then return -1 end
redis.call('LLEN', r)
redis.call('ZCARD', z)
redis.call('LLEN', k)
local now, skipped, enqueued = now_ms(), tonumber(ARGV[6]), 0
local stamp = be6(now)
local last = redis.call('HGET', nc, name .. ':last')

-- HINCRBY would fail, with the instant moved on already, where somebody else wrote no number.
local function count(what, more)
  local field = name .. ':' .. what
  local held = redis.call('HGET', nc, field)
  held = held and #held < 16 and string.match(held, '^%d+$') or 0
  redis.call('HSET', nc, field, string.format('%.0f', tonumber(held) + more))
end

for i = 8, #ARGV, 3 do
  local id, instant, record = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]
  local row = last and redis.call('HGET', m, last)
  local unfinished = last and (row and sub(row, 2, 2) == '\0' or not row and redis.call('HEXISTS', b, last) == 1)
  if ARGV[7] == '1' and unfinished then
    skipped = skipped + 1
  elseif redis.call('HEXISTS', b, id) + redis.call('HEXISTS', m, id) + redis.call('HEXISTS', id_memory, id)
    + redis.call('HEXISTS', id_memory_before, id) == 0 then
    record = sub(record, 1, 4) .. stamp .. sub(record, 5)
    row = fresh_row(record)
    redis.call('HSET', b, id, record)
    redis.call('HSET', m, id, sub(row, 1, 38) .. be6(instant) .. sub(row, 45))
    make_ready(id, priority_of(row), now)
    last, enqueued = id, enqueued + 1
  end
end
if ARGV[5] == '' then redis.call('ZREM', nz, name) else redis.call('ZADD', nz, ARGV[5], name) end
if enqueued > 0 then
  redis.call('HSET', nc, name .. ':last', last)
  count('enqueued', enqueued)
  wake(k)
end
if skipped > 0 then count('skipped', skipped) end
return enqueued
