-- Enqueue occurrences of a recurrence and set when it is due next, atomically.
-- KEYS records rows ready ready_by_priority counters recurrences next_instants recurrence_counters announced
-- KEYS ready_marker id_memory id_memory_before
-- NEEDS fences ready markers
-- ARGV lineage, fence, name, instant that was due, next instant ('' for none), occurrences skipped,
--   1 when none may be enqueued while the one before is unfinished; for each: id, instant, record less scheduled
-- Returns occurrences enqueued; -1 when another instant is due by now
-- Refusals: FENCED, FORGOTTEN

local refusal = refusal_of(ARGV[1], ARGV[2])
if refusal then return refusal end
local name = ARGV[3]
local due = redis.call('ZSCORE', next_instants, name)
if not due or tonumber(due) ~= tonumber(ARGV[4]) or not redis.call('HGET', recurrences, name) then return -1 end
-- EXPECT ready ready_marker ready_by_priority
local now, skipped, enqueued = now_ms(), tonumber(ARGV[6]), 0
local stamp = be6(now)
local last = redis.call('HGET', recurrence_counters, name .. ':last')

-- HINCRBY would fail on a corrupt count after the instant was advanced.
local function count(what, more)
  local field = name .. ':' .. what
  local held = redis.call('HGET', recurrence_counters, field)
  held = held and #held < 16 and string.match(held, '^%d+$') or 0
  redis.call('HSET', recurrence_counters, field, decimal(tonumber(held) + more))
end

for i = 8, #ARGV, 3 do
  local id, instant, record = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]
  local row = last and redis.call('HGET', rows, last)
  local unfinished = last and (row and sub(row, ENDING, ENDING) == '\0' or not row and redis.call('HEXISTS', records, last) == 1)
  if ARGV[7] == '1' and unfinished then
    skipped = skipped + 1
  elseif redis.call('HEXISTS', records, id) + redis.call('HEXISTS', rows, id) + redis.call('HEXISTS', id_memory, id)
    + redis.call('HEXISTS', id_memory_before, id) == 0 then
    record = sub(record, 1, RECORD_SCHEDULED - 1) .. stamp .. sub(record, RECORD_SCHEDULED)
    row = fresh_row(record)
    redis.call('HSET', records, id, record)
    redis.call('HSET', rows, id, set(row, DUE, be6(instant)))
    make_ready(id, priority_of(row), now)
    last, enqueued = id, enqueued + 1
  end
end
if ARGV[5] == '' then redis.call('ZREM', next_instants, name) else redis.call('ZADD', next_instants, ARGV[5], name) end
if enqueued > 0 then
  redis.call('HSET', recurrence_counters, name .. ':last', last)
  count('enqueued', enqueued)
  wake(ready_marker)
end
if skipped > 0 then count('skipped', skipped) end
return enqueued
