-- Settle handled messages and reserve the next ones, in one round trip.
-- KEYS records rows ready ready_by_priority schedule in_flight completed dead_letters errors unique_keys counters announced
-- KEYS ready_marker schedule_marker parked paused places_taken waiting_for_place order_heads handed_out outbox results result_runs
-- KEYS checkpoints recurrence_counters expired stops cancelled rates totals successor_waits
-- NEEDS fences stops place_counts schedule outbox message_steps
-- ARGV lease name, fence, fence in 6 bytes, most ms that a reservation lasts, number of messages to reserve, the
--   queue's limits ('', or five optional numbers, as below); messages completed, how many arguments these have, how many
--   of these say what they store;
--   their ids; for each run of alike messages: how many, their row as reserved, their new row, and if the row's flags
--     say that they have keys, unique keys and concurrency keys, each of the latter with a zero and the order key
--     behind it;
--   for each run of messages with results, or of members of a batch, and for each message with follow-ups, and each
--     occurrence: the position above of the first, from 1; how many results, ms to keep them; of the first, follow-ups,
--     instant and end in six bytes each, and name of its recurrence (each '' for none); how many are members, and the
--     report of their ends ('' for none); the results;
--   for each settled otherwise: id, row as reserved, new row, kind, ms, text, ms that its handler took ('' if it was
--     not called). Kinds: retry, park and asleep, with delay and error; dead, with 1 if it holds its order key, and
--     cancel, with its error; expire; release, to the head, before those released earlier, with 1 if it had begun. A
--     message that was asked to stop is cancelled instead
-- Returns now; ids that are not reserved by the caller any more (unchanged); 1 if a successor waits, told only once; of
--   the messages reserved: ids, records, and rows, each after the position, from 1, of the first message that has it;
--   ms until the limits allow more: -1 if they do, or if that depends on messages in flight, 0 to ask again at once; 1
--   if messages are ready and none could be reserved; how many messages of a newer version were deferred for a minute;
--   for each malformed one, now a dead letter: id, row, problem
-- Refusals: FENCED if a newer launch has announced itself, FORGOTTEN if the store was emptied
-- The types of keys were checked when the launch announced itself. If a type has changed since, the order of the writes
-- leaves only damage that `repair.lua` and `recover.lua` repair. Parts are within conditions, since Lua makes the
-- functions of a block whenever it is entered.

local refusal = refusal_of(ARGV[1], ARGV[2])  -- GUARD fence compare
if refusal then
  wake(ready_marker)
  return refusal
end
local now = now_ms()

local settled, stale = false, {}  -- whether anything was; ids whose reservation was no longer the caller's
local completions = tonumber(ARGV[7])
local extras = 10 + ARGV[8]  -- where what they leave begins
local others = extras + ARGV[9]  -- where those begin that are settled otherwise
if #ARGV > 9 then
-- PART settle
end

local claim, limited = tonumber(ARGV[5]), ARGV[6] ~= ''
-- The queue's limits, each '' for none: most in flight; most handed out in a period, its ms; most with a rate key
-- handed out in a period, its ms. `rates.lua` reads the last two.
local most_in_flight, quota, period, most_of_key, period_of_key = string.match(ARGV[6], '^(%d*) (%d*) (%d*) (%d*) (%d*)$')
local wanted, room, sixtieth, left, left_in = claim, math.huge, nil, math.huge, nil
if limited then
  if most_in_flight ~= '' then room = tonumber(most_in_flight) - redis.call('ZCARD', in_flight) end  -- GUARD most in flight
  if quota ~= '' then
    -- A period is counted in sixtieths. Each counts until all of it is past, so no span of that length exceeds the
    -- quota.
    left, period = tonumber(quota), tonumber(period)
    sixtieth = math.max(1, period / 60)
    local spent, oldest = redis.call('HGETALL', handed_out), (floor(now / sixtieth) + 1) * sixtieth
    for i = 1, #spent, 2 do
      local ends = ((whole(spent[i]) and tonumber(spent[i]) or -1) + 1) * sixtieth
      -- GUARD counts of a quota that are none
      if ends <= now - period or ends > now + period or not whole(spent[i + 1]) then
        redis.call('HDEL', handed_out, spent[i])
      else
        left, oldest = left - tonumber(spent[i + 1]), math.min(oldest, ends)
      end
    end
    left_in, room = math.max(1, math.ceil(oldest + period - now)), math.min(room, left)
  end
  wanted = math.max(0, math.min(wanted, room))
end

local count, reserved_ids, reserved_records, reserved_rows = 0, {}, {}, {}
local malformed, newer_ones = {}, 0  -- malformed: new dead letters, as id, row, problem
local awake, more_in, held_back = false, -1, 0
local ranked = redis.call('ZCARD', ready_by_priority)
local available = redis.call('LLEN', ready) + ranked
local more = wanted > 0 and available > 0 and redis.call('EXISTS', paused) == 0  -- GUARD pause
if more then
-- PART reserve
end
if #counted + #returned_keys > 0 then
  count_places()
  write_places()
  for i = 1, #returned_keys do available = available + offer_places(returned_keys[i]) end  -- GUARD a place returned
end
if claim > 0 then
  -- Without ids there are no duplicates, so the count must be 0. A wrong one would keep `reserve_one.lua` from working.
  local duplicates = count == 0 and redis.call('HGET', counters, DUPLICATES)
  if duplicates and available == 0 then
    redis.call('HDEL', counters, DUPLICATES)
    duplicates = nil
  end
  awake = count > 0 or more
  more_in = left - count <= 0 and left_in or more and count == 0 and 0 or -1
  -- None could be reserved: is nothing ready, or do a limit, a pause or a concurrency key hold messages back?
  if count == 0 and available + redis.call('ZCARD', waiting_for_place) > (tonumber(duplicates or 0) or 0) then held_back = 1 end
end

write_totals()
-- One marker wakes one consumer, which wakes the next one if there is more to do within the limits.
if (pushed > 0 or awake or settled and limited) and room > count and available > 0 then wake(ready_marker) end
return {now, stale, redis.call('DEL', successor_waits), reserved_ids, reserved_records, reserved_rows, more_in, held_back,
  newer_ones, malformed}
