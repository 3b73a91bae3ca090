-- NEEDS rows
-- Ids of deleted messages are put into the younger of two generations. When that is old or full, the older one is
-- forgotten, and the younger one takes its place.
local function age_ids(now, lasts, most)
  local size, before = redis.call('SCARD', id_memory), redis.call('SCARD', id_memory_before)
  local began = tonumber(redis.call('HGET', counters, 'id memory began') or 0) or 0
  -- GUARD ids last their time; ids last no longer; most ids of a generation
  local over = now - began >= lasts or size >= most
  if over and size + before > 0 then
    redis.call('UNLINK', id_memory_before, id_digests_before)  -- GUARD digests last no longer
    if size > 0 then redis.call('RENAME', id_memory, id_memory_before) end  -- GUARD two generations of ids
    -- GUARD two generations of digests
    if redis.call('HLEN', id_digests) > 0 then redis.call('RENAME', id_digests, id_digests_before) end
  end
  if over or now < began then redis.call('HSET', counters, 'id memory began', now) end  -- GUARD a clock that went back
end

-- Remember ids, and the digests of chosen ids. Called before the messages are deleted.
local function remember(ids)
  if redis.call('HEXISTS', counters, 'ids chosen') == 1 then
    local found_rows, digests = redis.call('HMGET', rows, unpack(ids)), {}
    for i = 1, #ids do
      local row = found_rows[i]
      local large = row and has_flag(byte(row, FLAGS) or 0, LARGE)  -- the record of a large one is not read
      local digest = digest_of(row, not large and redis.call('HGET', records, ids[i]))
      -- GUARD digest of a forgotten id
      if digest then digests[#digests + 1], digests[#digests + 2] = ids[i], digest end
    end
    if #digests > 0 then redis.call('HSET', id_digests, unpack(digests)) end
  end
  redis.call('SADD', id_memory, unpack(ids))
end
