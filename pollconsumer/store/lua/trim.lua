-- Delete completed, cancelled, expired and dead messages beyond the limits, oldest first, and expired results. End
-- batches that are abandoned or have expired, and delete ended ones. Count messages that earlier versions have not
-- counted.
-- KEYS records rows completed cancelled expired dead_letters errors checkpoints progress logs results result_runs result_ends
-- KEYS counters id_memory id_memory_before id_digests id_digests_before stops uncounted totals
-- KEYS batches batch_members batch_callbacks batch_instants outbox schedule_marker
-- KEYS ready ready_by_priority ready_marker waiting_for_place order_heads
-- NEEDS id_memory totals batches message_steps places
-- ARGV how many of each kind to delete now; ms to remember ids at least, maximum number of ids in a generation; how
--   many messages to keep of each kind, ms to keep them; the same for dead letters (each '' for no limit)
-- Returns messages deleted

local PAGE = 25  -- runs of results that are read at once, each of up to hundreds of ids
local ROWS = 100  -- rows that are read at once
local now, most, forgotten = now_ms(), tonumber(ARGV[1]), 0

local function forget(ids)
  remember(ids)  -- GUARD ids remembered
  for _, key in ipairs({rows, records, errors, progress, logs, stops}) do
    if redis.call('HLEN', key) > 0 then redis.call('HDEL', key, unpack(ids)) end
  end
  drop_checkpoints(ids)  -- GUARD steps of the forgotten
  forgotten = forgotten + #ids
end

-- Before a message is removed from a list: if the script failed afterwards, the message could not be found again.
-- EXPECT completed cancelled expired dead_letters errors rows records id_digests counters id_memory
age_ids(now, tonumber(ARGV[2]), tonumber(ARGV[3]))
local number, ms = tonumber(ARGV[4]), tonumber(ARGV[5])
local horizon = ms and be6(math.max(0, now - ms))

-- A message in a list without a row is deleted already. One whose row has not ended is kept: a script was interrupted.
local function is_old(row)
  local ended = row and six(row, ENDED)
  return not ended or ended ~= NEVER and ended < horizon  -- GUARD what has not ended; what is forgotten already
end

for _, ended in ipairs({completed, cancelled, expired}) do
  local length = redis.call('LLEN', ended)
  local count = number and math.max(0, math.min(most, length - number)) or 0
  local page = 1  -- most often, nothing is older
  while ms and count < math.min(most, length) do
    local ids, old = redis.call('LRANGE', ended, count, math.min(count + page, most) - 1), 0
    local found = redis.call('HMGET', rows, unpack(ids))
    while old < #ids and is_old(found[old + 1]) do old = old + 1 end  -- GUARD what is kept
    count, page = count + old, ROWS
    if old < #ids then break end
  end
  if count > 0 then forget(redis.call('LPOP', ended, count)) end
end
number, ms = tonumber(ARGV[6]), tonumber(ARGV[7])
if number or ms then
  local surplus = number and redis.call('ZCARD', dead_letters) - number or 0
  local entries, ids = redis.call('ZRANGE', dead_letters, 0, most - 1, 'WITHSCORES'), {}
  for i = 1, #entries / 2 do
    -- GUARD dead letters that are kept
    if i > surplus and not (ms and tonumber(entries[2 * i]) < now - ms) then break end
    ids[i] = entries[2 * i - 1]
  end
  if #ids > 0 then
    leave_order(ids)  -- GUARD a forgotten head passes on
    forget(ids)
    redis.call('ZREM', dead_letters, unpack(ids))
  end
end

-- Runs of results, and single ones of an earlier version.
local lapsed = redis.call('ZRANGEBYSCORE', result_ends, '-inf', now, 'LIMIT', 0, most)
if #lapsed > 0 then redis.call('ZREM', result_ends, unpack(lapsed)) end
repeat
  local runs, taken = redis.call('ZRANGEBYSCORE', result_runs, '-inf', now, 'LIMIT', 0, PAGE), {}
  for i = 1, #runs do
    if #lapsed >= most then break end  -- GUARD results that are forgotten at once
    taken[i] = runs[i]
    for id in string.gmatch(sub(runs[i], 7), '[^\n]+') do lapsed[#lapsed + 1] = id end
  end
  if #taken > 0 then redis.call('ZREM', result_runs, unpack(taken)) end
until #taken < PAGE  -- GUARD runs beyond a page
if #lapsed > 0 then
  local count_fields, left, gone = {}, {}, {}
  for i = 1, #lapsed do count_fields[i] = lapsed[i] .. '\n' end
  local found = redis.call('HMGET', results, unpack(count_fields))
  for i = 1, #lapsed do
    local id, count_field = lapsed[i], count_fields[i]
    local count = left[id] or tonumber(found[i] or 0) or 0
    if count == 0 then  -- GUARD the result of a later one
      gone[#gone + 1] = id
    else  -- its result was dropped before, or is a later one
      left[id] = count - 1  -- GUARD results of one id at once
      if count == 1 then redis.call('HDEL', results, count_field) else redis.call('HSET', results, count_field, count - 1) end
    end
  end
  if #gone > 0 then redis.call('HDEL', results, unpack(gone)) end
end

local BATCHES, CHUNKS = 20, 500  -- batches that are looked at in one trim; chunks that are removed at once
local batches_due = redis.call('ZRANGEBYSCORE', batch_instants, '-inf', now, 'LIMIT', 0, BATCHES)
if #batches_due > 0 then
  -- An open batch is abandoned; a closed one has expired; an ended one is deleted.
  local function forget_chunks(batch, from, to)
    for first = from, to, CHUNKS do
      local fields = {}
      for chunk = first, math.min(to, first + CHUNKS - 1) do fields[#fields + 1] = batch .. '\n' .. chunk end
      redis.call('HDEL', batch_members, unpack(fields))
    end
  end

  -- If the producer has reported no total: the chunks from the first one on, until they contain all ended members.
  local function forget_ends(batch, state)
    local chunk, left = 0, number6(state, MEMBERS_COMPLETED) + number6(state, MEMBERS_DEAD)
    left = left + number6(state, MEMBERS_CANCELLED) + number6(state, MEMBERS_EXPIRED)
    while left > 0 and chunk < FIRST_ADDED / PER_CHUNK do
      local field = batch .. '\n' .. chunk
      local held = redis.call('HGET', batch_members, field) or ''
      for at = 1, #held do
        local codes = byte(held, at)
        while codes > 0 do
          left, codes = left - (codes % 4 > 0 and 1 or 0), floor(codes / 4)
        end
      end
      redis.call('HDEL', batch_members, field)
      chunk = chunk + 1
    end
  end

  for i = 1, #batches_due do
    local batch = batches_due[i]
    local state = state_of_batch(batch)
    if not state or has_batch_flag(state, BATCH_ENDED) then  -- GUARD what has ended is forgotten
      redis.call('ZREM', batch_instants, batch)
      if state then
        if has_batch_flag(state, BATCH_ABANDONED) then forget_ends(batch, state) end  -- GUARD an abandoned one has no total
        forget_chunks(batch, 0, floor(math.min(number6(state, TOTAL), FIRST_ADDED) / PER_CHUNK))
        forget_chunks(batch, FIRST_ADDED / PER_CHUNK, floor(number6(state, NEXT_NUMBER) / PER_CHUNK))
      end
      for _, callback in ipairs({'then', 'failed', 'ended'}) do
        redis.call('HDEL', batch_callbacks, batch .. '\n' .. callback)
      end
      redis.call('HDEL', batches, batch)
    else
      state = with_batch_flag(state, has_batch_flag(state, BATCH_CLOSED) and BATCH_EXPIRED or BATCH_ABANDONED)
      -- GUARD failed once, when it is shut
      if not has_batch_flag(state, CALLED_FAILED) then state = call_back(batch, state, 'failed', CALLED_FAILED, now) end
      redis.call('HSET', batches, batch, end_batch(batch, state, now))
    end
  end
end

local is_list, waiting = pcall(redis.call, 'LRANGE', uncounted, 0, most - 1)
if is_list and #waiting > 0 then
  for _, entry in ipairs(waiting) do
    -- GUARD what is no completion
    if #entry >= 11 + HANDLER then count_settled(sub(entry, 13), 'complete', 1, number6(entry, 7) - number6(entry, 1)) end
  end
  redis.call('LPOP', uncounted, #waiting)  -- GUARD completions are counted once
  write_totals()
end
return forgotten
