-- Release a launch's reservations, because the reply to its step was lost, or it died.
-- KEYS records rows ready ready_by_priority in_flight counters announced ready_marker places_taken waiting_for_place order_heads
-- KEYS unique_keys stops cancelled rates totals outbox
-- NEEDS fences stops
-- ARGV lease name, fence, fence in 6 bytes; ids whose handlers have ended, ids in their last attempt, each list after
--   its length; ids to keep reserved
-- Returns messages released
-- Refusals: FENCED, FORGOTTEN
-- The attempt is charged if the handler has ended, or if it was the last attempt. In the latter case CRASHES becomes
-- SPENT: the next reservation makes the message a dead letter. A message recorded as begun stays reserved: recover.lua
-- makes it a dead letter. A message that was asked to stop is cancelled.

local refusal = refusal_of(ARGV[1], ARGV[2])  -- GUARD fence compare
if refusal then return refusal end
-- EXPECT ready ready_marker cancelled outbox counters places_taken ready_by_priority waiting_for_place
local ended, spent, keep, at = {}, {}, {}, 4
for _, listed in ipairs({ended, spent}) do
  local last = at + tonumber(ARGV[at])
  for i = at + 1, last do listed[ARGV[i]] = true end
  at = last + 1
end
for i = at, #ARGV do keep[ARGV[i]] = true end
local ids, found_rows = {}, {}
for _, id in ipairs(redis.call('ZRANGE', in_flight, 0, -1)) do
  local row = not keep[id] and well_formed(redis.call('HGET', rows, id))  -- GUARD what the launch keeps
  -- GUARD fence of the row; what was begun
  if row and six(row, FENCE) == ARGV[3] and not has_flag(byte(row, FLAGS), BEGUN) then
    ids[#ids + 1], found_rows[#found_rows + 1] = id, row
  end
end
local order, returning, freed, now = by_reservation(ids, found_rows), {}, {}, now_ms()
local rated = redis.call('EXISTS', rates) == 1
for i = #order, 1, -1 do
  local id, row = order[i].id, order[i].row
  local attempts, crashes = attempts_of(row), spent[id] and SPENT or byte(row, CRASHES)
  if not ended[id] and not spent[id] then
    attempts = math.max(attempts - 1, 0)
    if rated then take_back_charge(id, six(row, RESERVED)) end  -- GUARD charges taken back
  end
  redis.call('ZREM', in_flight, id)  -- GUARD removed from flight
  row = set(row, ATTEMPTS, attempts_bytes(attempts), CRASHES, char(crashes), RESERVED, NEVER, STARTED, NEVER)
  if not stops_here(id, row, now, freed) then returning[#returning + 1], returning[#returning + 2] = id, row end
end
for i = #freed, 1, -1 do offer_places(freed[i]) end
for i = 1, #returning, 2 do return_to_queue(returning[i], returning[i + 1]) end
if #order > 0 then wake(ready_marker) end
write_totals()
return #order
