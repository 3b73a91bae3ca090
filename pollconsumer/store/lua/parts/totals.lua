-- NEEDS rows
-- Counts what a script settles, for metrics: see store/reading/ledger.py. Totals are written last, and neither a
-- corrupt total nor a key of another type prevents a settlement.

local MOST_TOTALS = 1000  -- beyond them, what was not handled counts for no handler: anybody can enqueue for any name
local LONGEST = 24

local increments = {}

local function count_span(name, ms, times)
  ms = math.max(ms, 0)  -- a clock was set back
  local _, bits = math.frexp(ms)
  local bucket = name .. math.min(bits, LONGEST)
  increments[bucket] = (increments[bucket] or 0) + times
  if ms > 0 then increments[name .. 'ms'] = (increments[name .. 'ms'] or 0) + ms * times end
end

-- Count `times` messages with the same row. `took`: ms that their handlers took; nil if they were not called.
local function count_settled(row, kind, times, took)
  local name = sub(row, HANDLER, (find(row, '\0', HANDLER, true) or 0) - 1)
  if took then
    count_span(kind .. '\n' .. name .. '\n', took, times)
    local reserved, ready = number6(row, RESERVED), number6(row, ENQUEUED)
    count_span('waiting\n\n', reserved - ready, times)
    -- Only first attempts count for lateness: a later one is late by design, and so is one after a sleep.
    if six(row, DUE) ~= NEVER and attempts_of(row) == 1 and byte(row, GENERATION) == 0
      and not has_flag(byte(row, FLAGS), CHECKPOINT) then
      count_span('lateness\n\n', ready - number6(row, DUE), times)
    end
  else
    local found, known = pcall(redis.call, 'HLEN', totals)
    if kind == 'park' or found and known >= MOST_TOTALS then name = '' end
    name = kind .. '\n' .. name .. '\n'
    increments[name] = (increments[name] or 0) + times
  end
end

local function write_totals()
  for name, times in pairs(increments) do
    if not pcall(redis.call, 'HINCRBY', totals, name, times) then  -- it was no number
      pcall(redis.call, 'HSET', totals, name, times)
    end
  end
end
