-- NEEDS numbers
-- The layout of records, described in docs/reference/keyspace.md and shared with store/records/rows.py.

-- Flags of rows and, up to CONCURRENCY, of records.
local LARGE, UNIQUE, PARKED, CONCURRENCY, WAITING, BEGUN, CHECKPOINT, BOOKED = 1, 2, 4, 8, 16, 32, 64, 128

-- Offsets of a record's fields: version, flags, priority (2 bytes), when it was enqueued (6), length of the unique key,
-- the key. With a concurrency key: its limit, its length, the key. With a rate key: how many (2) and ms of the period
-- (6), zeros for the queue's rate; its length, the key. If the user chose the id: the digest of handler and payload.
-- With an expiry: when; on the way here, ms from enqueueing or due time. With options: their length (2), then JSON.
-- With a continuation: its length (6), then JSON. Then the handler's name, a line feed, the payload. A rate key, a
-- digest, an expiry or options need EXTENDED_VERSION. A continuation, an order key, or newer options need
-- FLAGGED_VERSION: it always has options, perhaps of length 0, and a second byte of flags after the keys. With an order
-- key: its length, the key; then the flag CONCURRENCY is set, and the concurrency key may have length 0.
local RECORD_VERSION, RECORD_FLAGS, RECORD_PRIORITY, RECORD_SCHEDULED, RECORD_UNIQUE_KEY = 1, 2, 3, 5, 11
local VERSION, EXTENDED_VERSION, FLAGGED_VERSION, LAST_VERSION = 65, 66, 67, 90
local RECORD_ALONE, RATE, EXPIRY, DIGEST, OPTIONS = 16, 16, 32, 64, 128  -- flags; from RECORD_ALONE on, of records alone
local CONTINUATION, ORDER = 1, 2  -- flags of the second byte
local DIGEST_BYTES = 8

local function has_flag(flags, flag)
  return flags % (2 * flag) >= flag
end

-- Offset after a record's unique key and concurrency key; beyond its end if it is truncated.
local function after_concurrency_key(record)
  local at = RECORD_UNIQUE_KEY + 1 + byte(record, RECORD_UNIQUE_KEY)
  if has_flag(byte(record, RECORD_FLAGS), CONCURRENCY) then at = at + 2 + (byte(record, at + 1) or #record) end
  return at
end

-- Offset after a record's rate key; beyond its end if it is truncated. A record of FLAGGED_VERSION has its second byte
-- of flags there.
local function after_rate_key(record)
  local at = after_concurrency_key(record)
  if has_flag(byte(record, RECORD_FLAGS), RATE) then at = at + 9 + (byte(record, at + 8) or #record) end
  return at
end

-- The order key of a record; nil if it has none, or is truncated. And the offset after it.
local function order_key(record)
  if not record or #record <= RECORD_UNIQUE_KEY or byte(record, RECORD_VERSION) ~= FLAGGED_VERSION then return nil end
  local at = after_rate_key(record)
  local flags, length = byte(record, at, at + 1)
  if not has_flag(flags or 0, ORDER) then return nil, at + 1 end
  local ends = at + 2 + (length or #record)
  return ends <= #record and sub(record, at + 2, ends - 1) or nil, ends
end

-- Offset after a record's keys; beyond its end if it is truncated.
local function after_keys(record)
  local _, at = order_key(record)
  return at or after_rate_key(record)
end

-- Offset of the handler's name in a record; beyond its end if it is truncated. And that of its continuation, if any.
local function handler_at(record)
  local at, flags = after_keys(record), byte(record, RECORD_FLAGS)
  if flags < RECORD_ALONE then return at end
  if has_flag(flags, DIGEST) then at = at + DIGEST_BYTES end
  if has_flag(flags, EXPIRY) then at = at + 6 end
  if not has_flag(flags, OPTIONS) then return at end
  local high, low = byte(record, at, at + 1)
  at = at + 2 + (low and high * 256 + low or #record)
  if byte(record, RECORD_VERSION) < FLAGGED_VERSION then return at end
  if not has_flag(byte(record, after_rate_key(record)) or 0, CONTINUATION) then return at end
  local continuation_at = at + 6
  return continuation_at + (#record < continuation_at and #record or number6(record, at)), continuation_at
end

-- Whether a later version wrote the record, so that nothing else in it can be read.
local function newer(record)
  local version, flags = byte(record or '', RECORD_VERSION, RECORD_FLAGS)
  if version == FLAGGED_VERSION and #record > RECORD_UNIQUE_KEY and has_flag(flags, OPTIONS) then
    return (byte(record, after_rate_key(record)) or 255) > CONTINUATION + ORDER  -- GUARD flags of a newer version
  end
  return version and version > EXTENDED_VERSION and version <= LAST_VERSION
end

-- The record; where its head ends, with a line feed; where the handler's name begins. Nil if it is corrupt.
local function readable(record)
  if not record or #record <= RECORD_UNIQUE_KEY then return nil end
  local version, flags = byte(record, RECORD_VERSION, RECORD_FLAGS)
  if version > FLAGGED_VERSION or version < VERSION or version == FLAGGED_VERSION and newer(record) then return nil end
  local at = flags < CONCURRENCY and RECORD_UNIQUE_KEY + 1 + byte(record, RECORD_UNIQUE_KEY) or handler_at(record)
  local ends = find(record, '\n', at, true)
  if ends then return record, ends, at end
end
