-- Requeue orphans: messages reserved under a fence that is not announced any more. If the caller gives the live fences,
-- also messages that are reserved under any other fence and past their hard end.
-- KEYS records rows ready ready_by_priority in_flight dead_letters errors unique_keys counters announced ready_marker
-- KEYS places_taken waiting_for_place order_heads stops cancelled totals outbox
-- NEEDS stops
-- ARGV how many messages to skip, those with the latest hard ends; how many to examine; 1 to compare hard ends; for how
--   many messages it is known why the launch died; for each of these: id, why; live fences
-- Returns ids of the orphans; messages examined; of new dead letters id, row, problem
-- The attempt, counted at the reservation, stays charged, and the death is counted, since a message that kills its
-- process must run out of attempts. A message that was asked to stop is cancelled. One that was begun at most once
-- becomes a dead letter. A message of a newer version stays in flight, for a launch of that version.

local now = now_ms()
-- EXPECT ready ready_marker cancelled outbox counters places_taken errors ready_by_priority waiting_for_place
local last = -1 - tonumber(ARGV[1])
local flight = redis.call('ZRANGE', in_flight, last - tonumber(ARGV[2]) + 1, last, 'WITHSCORES')
if #flight == 0 then return {{}, 0, {}} end
local valid, live, known = {}, {}, {}
local fences = 5 + 2 * ARGV[4]
for i = 5, fences - 1, 2 do known[ARGV[i]] = ARGV[i + 1] end
for _, fence in ipairs(redis.call('HVALS', announced)) do valid[be6(tonumber(fence))] = true end
for i = fences, #ARGV do live[be6(tonumber(ARGV[i]))] = true end
local ids, hard_ends = {}, {}
for i = 1, #flight, 2 do
  ids[#ids + 1] = flight[i]
  hard_ends[flight[i]] = tonumber(flight[i + 1])
end
local order = by_reservation(ids, redis.call('HMGET', rows, unpack(ids)))
local orphans, returning, freed, dead = {}, {}, {}, {}
local at_most_once = 'skipped: its process died after it was recorded as begun, and it is delivered at most once'

for i = #order, 1, -1 do
  local id, row = order[i].id, order[i].row
  if not row then
    -- The step that pops it handles the missing row.
    local _, key = concurrency(readable(redis.call('HGET', records, id)))
    if key then free_place(key) end
    redis.call('ZREM', in_flight, id)
    redis.call('LPUSH', ready, id)
    orphans[#orphans + 1] = id
  else
    local fence = six(row, FENCE)
    local late = ARGV[3] == '1' and hard_ends[id] <= now and not live[fence]  -- GUARD live fences
    -- GUARD orphans alone; records of a newer version
    if (late or not valid[fence]) and not newer(redis.call('HGET', records, id)) then
      redis.call('ZREM', in_flight, id)  -- GUARD removed from flight
      row = set(row, CRASHES, char(math.min(byte(row, CRASHES) + 1, 255)))  -- GUARD deaths counted
      local waiting = set(row, RESERVED, NEVER, STARTED, NEVER)
      if not stops_here(id, waiting, now, freed) then
        if has_flag(byte(row, FLAGS), BEGUN) then  -- GUARD begun for the only time
          count_up('skipped', 1)
          count_settled(row, 'dead', 1)
          local why = known[id] or at_most_once
          end_as_dead(id, row, without_place(id, row, freed), now, why)
          dead[#dead + 1], dead[#dead + 2], dead[#dead + 3] = id, row, why
        else
          redis.call('HSET', errors, id, known[id] or 'died: its launch died while it was in flight')
          returning[#returning + 1], returning[#returning + 2] = id, waiting
        end
      end
      orphans[#orphans + 1] = id
    end
  end
end
for i = #freed, 1, -1 do offer_places(freed[i]) end
for i = 1, #returning, 2 do return_to_queue(returning[i], returning[i + 1]) end
if #orphans > 0 then wake(ready_marker) end
write_totals()
return {orphans, #ids, dead}
