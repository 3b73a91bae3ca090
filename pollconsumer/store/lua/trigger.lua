-- Enqueue an occurrence of a recurrence now, besides those that its rule yields.
-- KEYS records rows ready ready_by_priority counters recurrences recurrence_counters ready_marker id_memory
-- KEYS id_memory_before results answered
-- NEEDS occurrences once
-- ARGV name, id, instant, record less scheduled, 1 if a configuration defines it that no launch has brought yet
-- Returns 1; 0 when there is no recurrence of that name; -1 when there was such an occurrence

-- GUARD its definition is there
if ARGV[5] ~= '1' and redis.call('HEXISTS', recurrences, ARGV[1]) == 0 then return 0 end
-- EXPECT ready ready_marker ready_by_priority recurrence_counters
local now, instant = now_ms(), tonumber(ARGV[3])
if not occur(ARGV[2], instant, ARGV[4], now) then return -1 end
keep_instants(ARGV[1], ARGV[2], {be6(instant)}, now)
return 1
