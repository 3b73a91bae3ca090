-- Delete dead letters, and remember their ids.
-- KEYS records rows dead_letters errors checkpoints progress logs counters id_memory id_memory_before
-- KEYS id_digests id_digests_before ready ready_by_priority ready_marker waiting_for_place order_heads answered
-- NEEDS id_memory message_steps places once
-- ARGV ms for which ids are remembered at least, maximum number of ids in a generation; ids
-- Returns ids of the dead letters that this call deleted

local forgotten = {}
-- EXPECT records ready ready_marker ready_by_priority waiting_for_place order_heads
for i = 3, #ARGV do
  local id = ARGV[i]
  if redis.call('ZSCORE', dead_letters, id) then forgotten[#forgotten + 1] = id end  -- GUARD dead letters alone
end
age_ids(now_ms(), tonumber(ARGV[1]), tonumber(ARGV[2]))
if #forgotten > 0 then
  remember(forgotten)  -- GUARD ids remembered
  leave_order(forgotten)  -- GUARD a purged head passes on
  redis.call('ZREM', dead_letters, unpack(forgotten))
  for _, key in ipairs({records, rows, errors, progress, logs}) do redis.call('HDEL', key, unpack(forgotten)) end
  drop_checkpoints(forgotten)  -- GUARD steps of the purged
end
return forgotten
