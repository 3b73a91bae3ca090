-- Begin a message that is handled at most once, and complete those handled before it, in one round trip.
-- KEYS rows in_flight completed announced uncounted
-- NEEDS fences rows
-- ARGV lineage, fence; of the message that begins, and of each one completed: id, row as reserved, new row
-- Returns ids whose reservation was no longer the caller's (unchanged)
-- Refusals: FENCED when a newer launch has announced itself, FORGOTTEN when the store was emptied
-- Completed messages have no key to free, no checkpoint, no large record, no result, no follow-ups, and their queue has no
-- limits: a step settles others.
-- Writes are in the order of a step's. `trim.lua` counts what is completed here: the totals would take a third of this script.

local refusal = refusal_of(ARGV[1], ARGV[2])
if refusal then return refusal end

local argv, ids, count = ARGV, {}, 0
for at = 3, #argv, 3 do
  count = count + 1
  ids[count] = argv[at]
end
local found_rows, new_rows, gone, spans, stale = redis.call('HMGET', rows, unpack(ids)), {}, {}, {}, {}
for i = 1, count do
  local id, row, new_row = ids[i], argv[3 * i + 1], argv[3 * i + 2]
  if found_rows[i] == row then
    new_rows[#new_rows + 1], new_rows[#new_rows + 2] = id, new_row
    if i > 1 then
      local n = #gone + 1
      gone[n], spans[n] = id, sub(new_row, STARTED, SCHEDULED - 1) .. row
    end
  elseif found_rows[i] ~= new_row then
    stale[#stale + 1] = id
  end
end
if gone[1] then redis.call('RPUSH', completed, unpack(gone)) end
if new_rows[1] then redis.call('HSET', rows, unpack(new_rows)) end
if gone[1] then
  redis.call('ZREM', in_flight, unpack(gone))
  pcall(redis.call, 'RPUSH', uncounted, unpack(spans))
end
return stale
