-- Enqueue an occurrence of a recurrence now, besides those that its rule yields.
-- KEYS records rows ready ready_by_priority counters recurrences recurrence_counters ready_marker id_memory
-- KEYS id_memory_before results answered
-- NEEDS occurrences once
-- ARGV name, id, instant, record without its instant, 1 if a configuration defines it and no launch has stored it yet
-- Returns 1; 0 if there is no recurrence of that name; -1 if that occurrence exists

-- GUARD its definition is there
if ARGV[5] ~= '1' and redis.call('HEXISTS', recurrences, ARGV[1]) == 0 then return 0 end
-- EXPECT ready ready_marker ready_by_priority recurrence_counters
local now, instant = now_ms(), tonumber(ARGV[3])
if not occur(ARGV[2], instant, ARGV[4], now) then return -1 end
keep_instants(ARGV[1], ARGV[2], {be6(instant)}, now)
return 1
