-- NEEDS numbers
-- The layout of rows and records, described in docs/reference/keyspace.md and shared with store/records/rows.py.

-- Offsets of a row's fields. Instants and the fence take six bytes, priority and attempts two, all others one; the
-- handler's name ends the row; after a zero, the digest of a large record follows.
local FLAGS, ENDING, PRIORITY, ATTEMPTS, CRASHES, GENERATION, FENCE = 1, 2, 3, 5, 7, 8, 9
local RESERVED, STARTED, ENDED, SCHEDULED, DUE, ENQUEUED, FAILED, NEXT_ATTEMPT, HANDLER = 15, 21, 27, 33, 39, 45, 51, 57, 63
local NUMBER_IN_LINE = 21  -- in place of STARTED, while the message waits in line for a concurrency key

local LARGE, UNIQUE, PARKED, CONCURRENCY, WAITING, BEGUN, CHECKPOINT, BOOKED = 1, 2, 4, 8, 16, 32, 64, 128
local SPENT = 255  -- CRASHES of a message whose process died in its last attempt, or after it, unsettled

-- Offsets of a record's fields: version, flags, priority in two bytes, the instant of its enqueueing in six, the length of
-- the unique key, that key. With a concurrency key: its limit, its length, the key. With a rate key: how many in two bytes
-- and ms of the period in six, zeros for the queue's rate, its length, the key. If the user chose the id: the digest of
-- handler and payload. With an expiry: its instant; on its way here, the ms from acceptance or due time. With options:
-- their length in two bytes, and they as JSON. With a sequel: its length in six bytes, and it as JSON. Then the handler's
-- name, a line feed, the payload. A rate key, a digest, an expiry or options make it a record of EXTENDED_VERSION; a sequel,
-- and options that earlier versions of these do not know, one of FLAGGED_VERSION, which has options, if only of no length, and
-- a second byte of flags after the keys.
local RECORD_VERSION, RECORD_FLAGS, RECORD_PRIORITY, RECORD_SCHEDULED, RECORD_UNIQUE_KEY = 1, 2, 3, 5, 11
local VERSION, EXTENDED_VERSION, FLAGGED_VERSION, LAST_VERSION = 65, 66, 67, 90
local RECORD_ALONE, RATE, EXPIRY, DIGEST, OPTIONS = 16, 16, 32, 64, 128  -- flags; from RECORD_ALONE on, of records alone
local SEQUEL = 1  -- the one flag of the second byte
local DIGEST_BYTES = 8

local function has_flag(flags, flag)
  return flags % (2 * flag) >= flag
end

local function without_flag(flags, flag)
  return has_flag(flags, flag) and flags - flag or flags
end

-- A row with fields changed: set(row, FIELD, bytes, FIELD, bytes, ...).
local function set(row, ...)
  for i = 1, select('#', ...), 2 do
    local field, bytes = select(i, ...)
    row = sub(row, 1, field - 1) .. bytes .. sub(row, field + #bytes)
  end
  return row
end

local function six(row, field)
  return sub(row, field, field + 5)
end

local function priority_of(s)
  local high, low = byte(s, PRIORITY, PRIORITY + 1)
  return high * 256 + low - 32768
end

local function attempts_of(row)
  local high, low = byte(row, ATTEMPTS, ATTEMPTS + 1)
  return high * 256 + low
end

local function attempts_bytes(attempts)
  return char(floor(attempts / 256), attempts % 256)
end

-- The row, or nil if it is corrupt. That of a completed message ends before DUE if it was ready at once, never failed, and
-- its record has the handler's name.
local function well_formed(row)
  if row and #row == DUE - 1 then return row .. NEVER .. sub(row, SCHEDULED, SCHEDULED + 5) .. NEVER .. NEVER end
  return row and #row >= HANDLER - 1 and row or nil
end

-- Offset of what follows a record's unique key and concurrency key; beyond its end if it is truncated.
local function after_concurrency_key(record)
  local at = RECORD_UNIQUE_KEY + 1 + byte(record, RECORD_UNIQUE_KEY)
  if has_flag(byte(record, RECORD_FLAGS), CONCURRENCY) then at = at + 2 + (byte(record, at + 1) or #record) end
  return at
end

-- Offset of what follows a record's keys; beyond its end if it is truncated.
local function after_keys(record)
  local at = after_concurrency_key(record)
  if has_flag(byte(record, RECORD_FLAGS), RATE) then at = at + 9 + (byte(record, at + 8) or #record) end
  return byte(record, RECORD_VERSION) == FLAGGED_VERSION and at + 1 or at
end

-- The rate in a record, in eight bytes, and the key; nil if it has none.
local function rate_and_key(record)
  if not record or not has_flag(byte(record, RECORD_FLAGS), RATE) then return nil end
  local at = after_concurrency_key(record)
  return sub(record, at, at + 7) .. sub(record, at + 9, at + 8 + byte(record, at + 8))
end

-- Offset of the handler's name in a record; beyond its end if it is truncated. And that of its sequel, if it has one.
local function handler_at(record)
  local keys_end, flags = after_keys(record), byte(record, RECORD_FLAGS)
  local at = keys_end
  if flags < RECORD_ALONE then return at end
  if has_flag(flags, DIGEST) then at = at + DIGEST_BYTES end
  if has_flag(flags, EXPIRY) then at = at + 6 end
  if not has_flag(flags, OPTIONS) then return at end
  local high, low = byte(record, at, at + 1)
  at = at + 2 + (low and high * 256 + low or #record)
  if byte(record, RECORD_VERSION) < FLAGGED_VERSION or byte(record, keys_end - 1) ~= SEQUEL then return at end
  local sequel_at = at + 6
  return sequel_at + (#record < sequel_at and #record or number6(record, at)), sequel_at
end

-- Whether a later version wrote the record: nothing else of it can be interpreted.
local function newer(record)
  local version, flags = byte(record or '', RECORD_VERSION, RECORD_FLAGS)
  if version == FLAGGED_VERSION and #record > RECORD_UNIQUE_KEY and has_flag(flags, OPTIONS) then
    return (byte(record, after_keys(record) - 1) or 255) > SEQUEL  -- GUARD flags of a newer version
  end
  return version and version > EXTENDED_VERSION and version <= LAST_VERSION
end

-- The record, where its head ends, with a line feed, and where the handler's name begins; nil if it is corrupt.
local function readable(record)
  if not record or #record <= RECORD_UNIQUE_KEY then return nil end
  local version, flags = byte(record, RECORD_VERSION, RECORD_FLAGS)
  if version > FLAGGED_VERSION or version < VERSION or version == FLAGGED_VERSION and newer(record) then return nil end
  local at = flags < CONCURRENCY and RECORD_UNIQUE_KEY + 1 + byte(record, RECORD_UNIQUE_KEY) or handler_at(record)
  local ends = find(record, '\n', at, true)
  if ends then return record, ends, at end
end

-- The sequel of a record, as JSON: what the message's end brings about. nil if it has none.
local function sequel_of(record)
  if not record or byte(record, RECORD_VERSION) ~= FLAGGED_VERSION then return nil end
  local at, sequel_at = handler_at(record)
  return sequel_at and sub(record, sequel_at, at - 1)
end

-- The digest of handler and payload of a message whose id the user chose; nil if there is none. That of a large record,
-- which is dropped with the message's end, is also in the row.
local function digest_of(row, record)
  if row and has_flag(byte(row, FLAGS) or 0, LARGE) then
    local zero = find(row, '\0', HANDLER, true)
    return zero and sub(row, zero + 1, zero + DIGEST_BYTES)
  end
  if not readable(record) or not has_flag(byte(record, RECORD_FLAGS), DIGEST) then return nil end
  local at = after_keys(record)
  return sub(record, at, at + DIGEST_BYTES - 1)
end

-- Offset of a record's expiry; nil if it has none.
local function expiry_at(record)
  local flags = byte(record, RECORD_FLAGS)
  return has_flag(flags, EXPIRY) and after_keys(record) + (has_flag(flags, DIGEST) and DIGEST_BYTES or 0) or nil
end

-- A record with the instant of its expiry, if it has any, in place of the time from then until that.
local function expiring(record, from)
  local at = expiry_at(record)
  return at and set(record, at, be6(floor(from) + number6(record, at))) or record
end

-- What a row says of its record: FLAGS without those of records alone, and what follows the fields.
local function row_flags(record)
  return byte(record, RECORD_FLAGS) % RECORD_ALONE + (#record > 1024 and LARGE or 0)
end

local function row_name(record, at, ends)
  local name = sub(record, at, ends - 1)
  local digest = #record > 1024 and digest_of(nil, record)
  return digest and name .. '\0' .. digest or name
end

-- As core/lifecycle.py derives it.
local function state_of(row)
  local ending = sub(row, ENDING, ENDING)
  if ending == 'c' then return 'completed' elseif ending == 'd' then return 'dead' elseif ending == 'x' then
    return 'cancelled'
  elseif ending == 'e' then
    return 'expired'
  end
  if six(row, RESERVED) ~= NEVER then return 'reserved' end
  return six(row, ENQUEUED) ~= NEVER and 'ready' or 'scheduled'
end

-- The row of a message without one, which is ready and was never reserved; or, with a due time, scheduled.
local function fresh_row(record, due)
  local at, scheduled = handler_at(record), six(record, RECORD_SCHEDULED)
  return char(row_flags(record)) .. '\0' .. sub(record, RECORD_PRIORITY, RECORD_PRIORITY + 1)
    .. '\0\0\0\0' .. NEVER .. NEVER .. NEVER .. NEVER .. scheduled .. (due and be6(due) or NEVER)
    .. (due and NEVER or scheduled) .. NEVER .. NEVER .. row_name(record, at, find(record, '\n', at, true) or #record + 1)
end

-- The row, the state and the record of a message; for its state 'newer' if a later version wrote its record, false if there
-- is no such message.
local function message_of(id)
  local row, record = well_formed(redis.call('HGET', rows, id)), redis.call('HGET', records, id)
  if newer(record) then return nil, 'newer' end  -- GUARD records of a newer version
  record = readable(record)
  if not row and not record then return nil, false end
  row = row or fresh_row(record)
  return row, state_of(row), record
end
