-- Enqueue occurrences of a recurrence, and set its next instant, atomically.
-- KEYS records rows ready ready_by_priority counters recurrences next_instants recurrence_counters announced
-- KEYS ready_marker id_memory id_memory_before recurrences_unreadable recurrences_ended results totals
-- NEEDS fences occurrences recurrences totals
-- ARGV lease name, fence, name, instant that was due, next instant ('' for none), occurrences skipped; 1 to enqueue
--   nothing while the last occurrence is unfinished, 2 to enqueue nothing while it waits; maximum number of occurrences
--   in all ('' for no limit); the definition from which they were computed; for each: id, instant, record without its
--   instant
-- Returns occurrences enqueued; -1 if the due instant or the definition has changed
-- Refusals: FENCED, FORGOTTEN

local refusal = refusal_of(ARGV[1], ARGV[2])  -- GUARD fence compare
if refusal then return refusal end
local name = ARGV[3]
local due = redis.call('ZSCORE', next_instants, name)
-- GUARD instant compare; definition compare
if not due or tonumber(due) ~= tonumber(ARGV[4]) or redis.call('HGET', recurrences, name) ~= ARGV[9] then return -1 end
-- EXPECT ready ready_marker ready_by_priority recurrences_ended recurrences_unreadable
local now, skipped, occurred = now_ms(), tonumber(ARGV[6]), {}
local last = redis.call('HGET', recurrence_counters, name .. ':last')
local left = ARGV[8] == '' and math.huge or tonumber(ARGV[8]) - count_of(name, 'enqueued')

-- HINCRBY would fail on a corrupt count after the instant was advanced.
local function count(what, more)
  redis.call('HSET', recurrence_counters, name .. ':' .. what, decimal(count_of(name, what) + more))
end

-- An uncharged attempt leaves the fence or, if it slept, the flag CHECKPOINT. What is parked may not have begun.
local function has_begun(row)
  local flags = row and byte(row, FLAGS)
  return row and (attempts_of(row) > 0 or has_flag(flags, CHECKPOINT) or six(row, FENCE) ~= NEVER and not has_flag(flags, PARKED))
end

for i = 10, #ARGV, 3 do
  local id, instant = ARGV[i], tonumber(ARGV[i + 1])
  local row = last and redis.call('HGET', rows, last)
  local unfinished = last and (row and sub(row, ENDING, ENDING) == '\0' or not row and redis.call('HEXISTS', records, last) == 1)
  if #occurred >= left then  -- GUARD most occurrences
    break
  elseif ARGV[7] == '1' and unfinished then  -- GUARD overlap
    skipped = skipped + 1
  -- GUARD one waits
  elseif ARGV[7] == '2' and unfinished and not has_begun(row) then
    skipped = skipped + 1
  elseif occur(id, instant, ARGV[i + 2], now) then
    last, occurred[#occurred + 1] = id, be6(instant)
  end
end
redis.call('HDEL', recurrence_counters, name .. ':before')  -- GUARD what was due is enqueued
if ARGV[5] ~= '' and #occurred < left then  -- GUARD ends after the last of them
  redis.call('ZADD', next_instants, ARGV[5], name)
else
  finish(name, now)
end
if #occurred > 0 then
  keep_instants(name, last, occurred, now)
  count('enqueued', #occurred)
end
if skipped > 0 then
  count('skipped', skipped)
  increments['skipped\n\n'] = skipped
  pcall(redis.call, 'HSET', totals, 'skipped\n\nat', decimal(now))
  write_totals()
end
return #occurred
