-- Take a free slot of a lease. If there is none, become the one launch that waits for a slot (the successor).
-- KEYS fences next baton leases launches ledger closing
--   (and each slot of the lease)
-- NEEDS watermarks
-- ARGV launch; ttl in ms; ms for which a claim to be the successor lasts (0: the launch does not wait); lease name
--   without its slot number; how many launches the ledger keeps at least, and at most; holder and ledger entry as JSON;
--   the greatest watermark that the caller knows; 'fence:seq' of each holder that has not renewed for long by the
--   caller's clock
-- Returns {1, slot, fence, now, recent ledger entries} if it was taken; {0, ms until the first lease may expire,
--   'fence:seq' of each slot, holder of each slot} for the successor, and for a caller that does not wait; {-1, holder
--   of each slot} if another launch waits already; {-1, {}} if the store is about to be closed
-- Refusals: FOREIGN with a corrupt key
-- Idempotent: the same launch gets the same fence.
-- A new fence is above every earlier one, and above every watermark and fence that the caller has seen. It is not below
-- the server's clock. So no fence is given twice, even after a backup was restored or a replica promoted.

local KEPT_FOR = 172800000

redis.call('GET', next)  -- a key of another type is refused before anything is written
redis.call('LLEN', launches)
redis.call('HLEN', ledger)
redis.call('SISMEMBER', leases, '')

local slots, now = {unpack(KEYS, 8)}, now_ms()
local last = redis.call('HGET', fences, 'last') or '0'
local watermark = redis.call('HGET', fences, 'mark') or '0'
if not (whole(last) and whole(watermark)) or not whole(decimal(math.max(tonumber(last), tonumber(watermark)) + 1)) then
  return redis.error_reply('FOREIGN ' .. fences)
end

local function recent()  -- of each group that has or had a lease lately, ten on average
  local ids = redis.call('LRANGE', launches, 0, math.min(10 * math.max(#redis.call('SMEMBERS', leases), 1), 100) - 1)
  return #ids > 0 and redis.call('HMGET', ledger, unpack(ids)) or {}
end

local function skip()  -- counts a launch that leaves, since the lease is held, with the holder's entry
  if redis.call('HGET', ledger, 'left') == ARGV[1] then return end  -- GUARD a launch that leaves is counted once
  redis.call('HSET', ledger, 'left', ARGV[1])
  local field = 'skipped:' .. redis.call('HGET', slots[1], 'launch')
  if whole(redis.call('HGET', ledger, field) or '0') then redis.call('HINCRBY', ledger, field, 1) end
end

local dead = {}
for i = 10, #ARGV do dead[ARGV[i]] = true end
local held, signs, holders, lapse = {}, {}, {}, -1
for i = 1, #slots do
  local lease = redis.call('HMGET', slots[i], 'fence', 'seq', 'launch', 'since', 'holder')
  local ours = whole(lease[1]) and whole(lease[2]) and lease[3] and whole(lease[4])
  if not ours and redis.call('EXISTS', slots[i]) == 1 then return redis.error_reply('FOREIGN ' .. slots[i]) end
  if lease[3] == ARGV[1] then return {1, i - 1, lease[1], tonumber(lease[4]), recent()} end  -- GUARD repeated call
  held[i] = lease
end
local closes = redis.call('PTTL', closing)
if closes == -1 then return redis.error_reply('FOREIGN ' .. closing) end  -- GUARD a store that is to close for ever
if closes >= 0 then return {-1, {}} end  -- GUARD none while the store is to close
for i = 1, #slots do
  local lease = held[i]
  local sign = lease[1] and lease[1] .. ':' .. lease[2]
  if not sign or dead[sign] then  -- GUARD held by another
    local entries = recent()
    -- GUARD fence above all earlier ones; fence above all that the launch has seen
    local _, fence = raise_watermark(math.max(tonumber(last), tonumber(ARGV[9])))
    local lease_name = ARGV[4] .. (i - 1)
    redis.call('HSET', fences, 'last', fence, lease_name, fence)
    redis.call('DEL', slots[i])
    redis.call('HSET', slots[i], 'fence', fence, 'seq', 0, 'since', now, 'launch', ARGV[1], 'holder', ARGV[7])
    redis.call('PEXPIRE', slots[i], ARGV[2])
    redis.call('SADD', leases, lease_name)
    if redis.call('GET', next) == ARGV[1] then redis.call('DEL', next) end
    redis.call('DEL', baton)
    -- The launch is listed already: its reply was lost after it had the lease, and the lease was broken before this
    -- repetition.
    if redis.call('HEXISTS', ledger, ARGV[1]) == 1 then redis.call('LREM', launches, 1, ARGV[1]) end
    redis.call('LPUSH', launches, ARGV[1])
    redis.call('HSET', ledger, ARGV[1], ARGV[8])
    while redis.call('LLEN', launches) > tonumber(ARGV[5]) do
      local oldest = redis.call('LINDEX', launches, -1)
      local started = string.match(redis.call('HGET', ledger, oldest) or '', '"started_ms": ?(%d+)')
      local is_kept = started and tonumber(started) > now - KEPT_FOR and redis.call('LLEN', launches) <= tonumber(ARGV[6])
      if is_kept then break end  -- GUARD launches of two days
      redis.call('RPOP', launches)
      redis.call('HDEL', ledger, oldest, 'skipped:' .. oldest)
    end
    return {1, i - 1, fence, now, entries}
  end
  signs[i] = sign
  holders[i] = lease[5] or ''
  local left = redis.call('PTTL', slots[i])
  if lapse < 0 or left < lapse then lapse = left end
end
if ARGV[3] == '0' then  -- GUARD who does not wait claims nothing
  skip()
  return {0, lapse, signs, holders}
end
-- A claim that lasts longer than any claim may is from before the clock was set back, and its launch may be gone.
local waiting = redis.call('PTTL', next) <= tonumber(ARGV[3]) and redis.call('GET', next)
if waiting and waiting ~= ARGV[1] then  -- GUARD one successor
  skip()
  return {-1, holders}
end
redis.call('SET', next, ARGV[1], 'PX', ARGV[3])
return {0, lapse, signs, holders}
