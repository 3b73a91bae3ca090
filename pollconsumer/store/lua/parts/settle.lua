-- The first part of a step: settle. Its ARGV are a step's.

-- Settled messages with keys to free: ids; by id, whether the unique key is free, too.
local keyed, has_ended = {}, {}
local dropped = {}  -- ids whose large record is dropped

-- Hot path: completions. Those with keys, a result or follow-ups cost more, and leave the others as quick.
if completions > 0 then
  local ids, runs, at = {}, {}, 10  -- runs: where each begins
  while at < extras do
    runs[#runs + 1] = at
    local after = at + 3 + ARGV[at]
    for i = at + 3, after - 1 do ids[#ids + 1] = ARGV[i] end
    at = after
  end
  local found_rows = redis.call('HMGET', rows, unpack(ids))
  local new_rows, gone, ended, refused, i, count = {}, {}, {}, {}, 0, 0
  for r = 1, #runs do
    at = runs[r]
    local row, new_row = ARGV[at + 1], ARGV[at + 2]
    local before, stamp, flags = count, sub(new_row, ENDED, SCHEDULED - 1), byte(new_row, FLAGS)
    for _ = 1, ARGV[at] do
      i = i + 1
      local id = ids[i]
      if found_rows[i] == row then
        count = count + 1
        new_rows[2 * count - 1], new_rows[2 * count] = id, new_row
        gone[count] = id
        ended[count] = stamp .. id
        if flags > 0 then
          keyed[#keyed + 1], has_ended[id] = id, true
          if has_flag(flags, LARGE) then dropped[#dropped + 1] = id end
          if has_flag(flags, CHECKPOINT) then redis.call('HDEL', checkpoints, id) end
        end
      else
        refused[i] = true
        if found_rows[i] ~= new_row then stale[#stale + 1] = id end
      end
    end
    if count > before then
      count_settled(row, 'complete', count - before, number6(new_row, ENDED) - number6(new_row, STARTED))
    end
  end
  if count > 0 then
    redis.call('RPUSH', completed, unpack(ended))
    redis.call('HSET', rows, unpack(new_rows))
    redis.call('ZREM', in_flight, unpack(gone))
    settled = true
  end
  local kept, kept_until, kept_ms, until_then
  for at = extras, others - 1, 5 do
    local i, text, follow_ups = tonumber(ARGV[at]), ARGV[at + 2], ARGV[at + 3]
    if not refused[i] then
      if text ~= '' then
        if not kept then kept, kept_until = {}, {} end
        kept[#kept + 1], kept[#kept + 2] = ids[i], text
        if ARGV[at + 1] ~= kept_ms then kept_ms, until_then = ARGV[at + 1], decimal(now + ARGV[at + 1]) end
        kept_until[#kept_until + 1], kept_until[#kept_until + 2] = until_then, ids[i]
      end
      if follow_ups ~= '' then
        -- Numbers rise, even if a failing server lost the last ones.
        local number = math.max(tonumber(redis.call('HGET', counters, 'sent on') or 0) + 1, now * 1000)
        redis.call('HSET', counters, 'sent on', decimal(number))
        redis.call('RPUSH', outbox, decimal(number) .. '\n' .. follow_ups)
      end
      -- The last occurrence that was completed, unless its recurrence was removed meanwhile.
      local instants, name = sub(ARGV[at + 4], 1, 12), sub(ARGV[at + 4], 13)
      if instants ~= '' and redis.call('HEXISTS', recurrence_counters, name .. ':last') == 1 then
        local held = redis.call('HGET', recurrence_counters, name .. ':previous')
        if not held or sub(held, 1, 6) <= sub(instants, 1, 6) then
          redis.call('HSET', recurrence_counters, name .. ':previous', instants .. text)
        end
      end
    end
  end
  if kept then
    redis.call('HSET', results, unpack(kept))
    redis.call('ZADD', result_ends, unpack(kept_until))
  end
end

local released, uncharged = {}, {}  -- uncharged: see refunds.lua
if others <= #ARGV then
-- PART settle_otherwise
end
if #uncharged > 0 or #keyed > 0 or #released > 0 then
-- PART let_go
end
