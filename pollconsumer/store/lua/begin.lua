-- Begin messages that are handled at most once, and complete those handled before them, in one round trip.
-- KEYS rows in_flight completed announced uncounted
-- NEEDS fences rows
-- ARGV lineage, fence; of those that begin or are completed with the same rows: how many, row as reserved, new row, ids
-- Returns ids whose reservation was no longer the caller's (unchanged)
-- Refusals: FENCED when a newer launch has announced itself, FORGOTTEN when the store was emptied
-- Completed messages have no key to free, no checkpoint, no large record, no result, no follow-ups, and their queue has no
-- limits: a step settles others.
-- Writes are in the order of a step's. `trim.lua` counts what is completed here: the totals would take a third of this script.

local refusal = refusal_of(ARGV[1], ARGV[2])  -- GUARD fence compare
if refusal then return refusal end

local argv, ids, runs, count, at = ARGV, {}, {}, 0, 3  -- runs: where each begins
while argv[at] do
  runs[#runs + 1] = at
  local last = at + 2 + tonumber(argv[at])
  for i = at + 3, last do
    count = count + 1
    ids[count] = argv[i]
  end
  at = last + 1
end
local found_rows, new_rows, gone, spans, stale = redis.call('HMGET', rows, unpack(ids)), {}, {}, {}, {}
count = 0
for r = 1, #runs do
  at = runs[r]
  local row, new_row = argv[at + 1], argv[at + 2]
  local span = sub(new_row, ENDING, ENDING) == 'c' and sub(new_row, STARTED, SCHEDULED - 1) .. row
  for _ = 1, tonumber(argv[at]) do
    count = count + 1
    local id, found = ids[count], found_rows[count]
    if found == row then  -- GUARD row compare
      new_rows[#new_rows + 1], new_rows[#new_rows + 2] = id, new_row
      if span then
        local n = #gone + 1
        gone[n], spans[n] = id, span
      end
    elseif found ~= new_row then  -- GUARD a repeated beginning is not stale
      stale[#stale + 1] = id
    end
  end
end
if gone[1] then redis.call('RPUSH', completed, unpack(gone)) end
if new_rows[1] then redis.call('HSET', rows, unpack(new_rows)) end
if gone[1] then
  redis.call('ZREM', in_flight, unpack(gone))  -- GUARD completed leaves flight
  pcall(redis.call, 'RPUSH', uncounted, unpack(spans))
end
return stale
