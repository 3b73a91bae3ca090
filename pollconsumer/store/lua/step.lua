-- Settle handled messages and reserve the next ones, in one round trip.
-- KEYS records rows ready ready_by_priority schedule in_flight completed dead_letters errors unique_keys counters announced
-- KEYS ready_marker schedule_marker parked paused places_taken waiting_for_place handed_out outbox results result_ends
-- KEYS checkpoints successor_waits
-- NEEDS fences places unique_keys
-- ARGV lineage, fence, fence in 6 bytes, ms that a reservation lasts at most, messages to reserve, the queue's limits ('',
--   or three optional numbers: most in flight, most handed out in a period, its ms), messages completed;
--   for each completed: id, row as reserved, new row;
--   for each settled otherwise: id, row as reserved, new row, kind, ms, text, follow-ups
--     (kinds: retry and park, with delay and error; dead, with its error; release, to the head, before those released
--     earlier; complete, with the result, how long to keep it, and follow-ups; begin: it stays reserved, and is handled at
--     most once)
-- Returns now, ids whose reservation was no longer the caller's (unchanged), 1 to the one caller that hands over to a
--   successor, for each message reserved: id, row, record; ms until the limits allow more: -1 if they do, or if that
--   depends on messages in flight, 0 to ask again at once; 1 if none could be reserved though messages are ready; how many
--   messages of a newer version were set aside for a minute; for each malformed one, now a dead letter: id, row, problem
-- Refusals: FENCED when a newer launch has announced itself, FORGOTTEN when the store was emptied

local refusal = refusal_of(ARGV[1], ARGV[2])
if refusal then
  wake(ready_marker)
  return refusal
end
-- EXPECT ready completed ready_marker records in_flight
local now, ranked = now_ms(), redis.call('ZCARD', ready_by_priority)

-- PART settle
-- PART reserve

-- One marker wakes one consumer, which wakes the next if there is more to do within the limits.
if (pushed > 0 or count > 0 or more or settled and limits ~= '') and room > count
  and (redis.call('LLEN', ready) > 0 or redis.call('ZCARD', ready_by_priority) > 0) then
  wake(ready_marker)
end
-- None could be reserved: is nothing ready, or does a limit, a pause or a concurrency key hold messages back?
local held_back = 0
if count == 0 and tonumber(ARGV[5]) > 0 then
  local there = redis.call('LLEN', ready) + redis.call('ZCARD', ready_by_priority) + redis.call('ZCARD', waiting_for_place)
  if there > tonumber(redis.call('HGET', counters, DUPLICATES) or 0) then held_back = 1 end
end
return {now, stale, redis.call('DEL', successor_waits), reserved, more_in, held_back, newer_ones, malformed}
