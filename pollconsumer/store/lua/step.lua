-- Settle what a launch has handled and reserve what it handles next, in one round trip.
-- KEYS records rows ready ready_by_priority schedule in_flight completed dead_letters errors unique_keys counters announced
-- KEYS ready_marker schedule_marker parked paused places_taken waiting_for_place handed_out outbox results result_ends
-- KEYS checkpoints successor_waits
-- NEEDS fences types places unique_keys
-- ARGV lineage, fence, fence in 6 bytes, ms that a reservation lasts at most, messages to reserve, the queue's limits ('',
--   or three numbers, each may be missing: most in flight, most handed out in a period, its ms), messages completed;
--   for each completed: id, row as reserved, row to be;
--   for each settled otherwise: id, row as reserved, row to be, kind, ms, text, messages to be sent
--     (kinds: retry and park, with their delay and error; dead, with its error; release, to the head, before what was
--     released before it; complete, with the result and how long it is kept, and what is to be sent with the completion;
--     begin: it stays reserved, and is handled now for the only time)
-- Returns now, ids whose reservation was no longer the caller's (nothing was changed for them), 1 to the one caller
--   that makes way for a successor, for each message reserved: id, row, record; and ms until the limits let more be
--   handed out: -1 where they do or only an end of what is in flight can tell, 0 where it is enough to ask again; 1 where
--   none was reserved that was to be, though messages are ready; and how many messages of a newer version were set aside
--   for a minute; for each that turned out malformed and is a dead letter now: id, row, problem
-- Refusals: FENCED when a newer launch has announced itself, FORGOTTEN when the store was emptied

local refusal = refusal_of(ARGV[1], ARGV[2])
if refusal then
  wake(ready_marker)
  return refusal
end
expect('LLEN', ready, completed, ready_marker)
expect('HLEN', records)
expect('ZCARD', in_flight)
local now, ranked = now_ms(), redis.call('ZCARD', ready_by_priority)

-- PART settle
-- PART reserve

-- One marker wakes one consumer, which wakes the next where there is more to do and no limit forbids it.
if (back > 0 or count > 0 or more or settled and limits ~= '') and room > count
  and (redis.call('LLEN', ready) > 0 or redis.call('ZCARD', ready_by_priority) > 0) then
  wake(ready_marker)
end
-- None was reserved that was to be: is nothing ready, or does a limit, a pause or a concurrency key hold it back?
local held_back = 0
if count == 0 and tonumber(ARGV[5]) > 0 then
  local there = redis.call('LLEN', ready) + redis.call('ZCARD', ready_by_priority) + redis.call('ZCARD', waiting_for_place)
  if there > tonumber(redis.call('HGET', counters, DUPLICATES) or 0) then held_back = 1 end
end
return {now, stale, redis.call('DEL', successor_waits), reserved, more_in, held_back, newer_ones, malformed}
