-- NEEDS records
-- The layout of rows, described in docs/reference/keyspace.md and shared with store/records/rows.py.

-- Offsets of a row's fields. Instants and the fence take six bytes, priority and attempts two, all others one; the
-- handler's name ends the row; after a zero, the digest of a large record follows.
local FLAGS, ENDING, PRIORITY, ATTEMPTS, CRASHES, GENERATION, FENCE = 1, 2, 3, 5, 7, 8, 9
local RESERVED, STARTED, ENDED, SCHEDULED, DUE, ENQUEUED, FAILED, NEXT_ATTEMPT, HANDLER = 15, 21, 27, 33, 39, 45, 51, 57, 63
local NUMBER_IN_LINE = 21  -- in place of STARTED, while the message waits in line for a concurrency key
local SPENT = 255  -- CRASHES of a message whose process died in its last attempt, or after it, unsettled

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

-- The row; nil if it is corrupt. A completed message's row ends before DUE if the message was ready at once and never
-- failed, and its record, which has the handler's name, is kept.
local function well_formed(row)
  if row and #row == DUE - 1 then return row .. NEVER .. sub(row, SCHEDULED, SCHEDULED + 5) .. NEVER .. NEVER end
  return row and #row >= HANDLER - 1 and row or nil
end

-- The rate in a record, in eight bytes, and the key; nil if it has none.
local function rate_and_key(record)
  if not record or not has_flag(byte(record, RECORD_FLAGS), RATE) then return nil end
  local at = after_concurrency_key(record)
  return sub(record, at, at + 7) .. sub(record, at + 9, at + 8 + byte(record, at + 8))
end

-- The digest of handler and payload of a message whose id the user chose; nil if there is none. If the record is large,
-- and so is deleted when the message ends, the digest is also in the row.
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

-- A record. If it has an expiry, the instant replaces the time until then, which counts from `from`.
local function expiring(record, from)
  local at = expiry_at(record)
  return at and set(record, at, be6(floor(from) + number6(record, at))) or record
end

-- What is in a row after its fields.
local function row_name(record, at, ends)
  local name = sub(record, at, ends - 1)
  local digest = #record > 1024 and digest_of(nil, record)
  return digest and name .. '\0' .. digest or name
end

local state_by_ending = {c = 'completed', d = 'dead', x = 'cancelled', e = 'expired'}

-- The state of a row, as in core/lifecycle.py.
local function state_of(row)
  local ended = state_by_ending[sub(row, ENDING, ENDING)]
  if ended then return ended end
  if six(row, RESERVED) ~= NEVER then return 'reserved' end
  return six(row, ENQUEUED) ~= NEVER and 'ready' or 'scheduled'
end

-- The row for a message without one: ready and never reserved, or, with a due time, scheduled.
local function fresh_row(record, due)
  local at, scheduled = handler_at(record), six(record, RECORD_SCHEDULED)
  local flags = byte(record, RECORD_FLAGS) % RECORD_ALONE + (#record > 1024 and LARGE or 0)
  return char(flags) .. '\0' .. sub(record, RECORD_PRIORITY, RECORD_PRIORITY + 1)
    .. '\0\0\0\0' .. NEVER .. NEVER .. NEVER .. NEVER .. scheduled .. (due and be6(due) or NEVER)
    .. (due and NEVER or scheduled) .. NEVER .. NEVER .. row_name(record, at, find(record, '\n', at, true) or #record + 1)
end

-- The row, the state and the record of a message. The state is 'newer' if a newer version wrote the record, and false
-- if there is no such message.
local function message_of(id)
  local row, record = well_formed(redis.call('HGET', rows, id)), redis.call('HGET', records, id)
  if newer(record) then return nil, 'newer' end  -- GUARD records of a newer version
  record = readable(record)
  if not row and not record then return nil, false end
  row = row or fresh_row(record)
  return row, state_of(row), record
end
