-- The second part of a step: reserve.

-- Bounds the time spent on ids that cannot be reserved.
local MOST_LOOKED_AT = 100
local ASIDE_MS = 60000

local new_rows, flight = {}, {0, LONG}
local seen = {}  -- ids popped
local hard_end = now + tonumber(ARGV[4])

local function pop(count)
  if ranked == 0 then return redis.call('LPOP', ready, count) or {} end
-- PART pop_by_priority
end

-- Hard ends are a millisecond apart, to return messages in that order.
local last_row

local function change_row(row)
  last_row = row
  reserved_rows[#reserved_rows + 1], reserved_rows[#reserved_rows + 2] = count, row
end

local function hand_out(id, row, record)
  count = count + 1
  new_rows[2 * count - 1], new_rows[2 * count] = id, row
  flight[2 * count + 1], flight[2 * count + 2] = hard_end + count - 1, id  -- GUARD order within a page
  reserved_ids[count], reserved_records[count] = id, record
  if row ~= last_row then change_row(row) end
end

-- Rows of messages with small records that are reserved for the first time, by what their records say before the payload,
-- but for version and keys; and what all have in common, from ATTEMPTS to ENDED.
local first_rows, since = {}, ARGV[3] .. be6(now)
local first_attempt = '\0\1\0\0' .. since .. NEVER .. NEVER

local function first_row(record, ends, handler_begins)
  local small = #record <= 1024
  local name = small and sub(record, handler_begins, ends - 1) or row_name(record, handler_begins, ends)
  local head = sub(record, RECORD_FLAGS, RECORD_UNIQUE_KEY - 1) .. name
  if small and first_rows[head] then return first_rows[head] end
  local scheduled = sub(record, RECORD_SCHEDULED, RECORD_UNIQUE_KEY - 1)
  local row = char(row_flags(record)) .. '\0' .. sub(record, RECORD_PRIORITY, RECORD_PRIORITY + 1)
    .. first_attempt .. scheduled .. NEVER .. scheduled .. NEVER .. NEVER .. name
  if small then first_rows[head] = row end
  return row
end

-- The same of records without keys, by their whole head. Mostly it is that of the one before.
local rows_by_head, latest, latest_ends, latest_row = {}, nil, 0, nil

local function head_of(record)
  if not record or #record > 1024 then return nil end
  if latest and sub(record, 1, latest_ends) == latest then return latest end
  if byte(record, RECORD_UNIQUE_KEY) ~= 0 then return nil end
  latest_ends = find(record, '\n', RECORD_UNIQUE_KEY + 1, true) or 0
  latest = latest_ends > 0 and sub(record, 1, latest_ends)
  latest_row = rows_by_head[latest]
  return latest
end

-- The same for rows that exist, as of messages that had a due time or an earlier attempt: what they have until ENDED, by
-- what they had until GENERATION.
local later_rows = {}

local function later_row(row)
  local head = sub(row, FLAGS, GENERATION)
  if not later_rows[head] then
    -- GUARD attempts counted
    later_rows[head] = sub(row, FLAGS, PRIORITY + 1) .. attempts_bytes(math.min(attempts_of(row) + 1, 65535))
      .. sub(row, CRASHES, GENERATION) .. since .. NEVER
  end
  return later_rows[head] .. sub(row, ENDED)
end

local rate = nil  -- its functions, once a message has one

-- Returns whether any of `ids` could not be reserved: another may take its place.
local function reserve_popped(ids)
  local passed_over, look_at, put_aside = false, nil, nil  -- functions once a message is unusual
  local keyed, keys_of = nil, nil  -- once a message has a key: rows with limits, and concurrency keys, by position
  local found_rows = redis.call('HMGET', rows, unpack(ids))
  local found_records = redis.call('HMGET', records, unpack(ids))
  for i = 1, #ids do
    local id, found = ids[i], found_records[i]
    if latest_row and found and not found_rows[i] and #found <= 1024 and sub(found, 1, latest_ends) == latest
      and not seen[id] then  -- GUARD an id that stands twice in a page
      -- Hot path: never reserved before, and like the one before but for its payload. As `hand_out`: a call costs more.
      count = count + 1
      new_rows[2 * count - 1], new_rows[2 * count] = id, latest_row
      flight[2 * count + 1], flight[2 * count + 2] = hard_end + count - 1, id  -- GUARD order within a page
      reserved_ids[count], reserved_records[count] = id, found
      if latest_row ~= last_row then change_row(latest_row) end
    else
      local row, record, ends, handler_begins, head, known, flags = nil, nil, nil, nil, nil, nil, nil
      local like = keyed and keyed[i]
      if not like then
        head = not found_rows[i] and head_of(found)
        known = head and not seen[id] and rows_by_head[head]
        if not known then
          row = found_rows[i] and well_formed(found_rows[i])
          record, ends, handler_begins = readable(found)
          flags = ends and byte(record, RECORD_FLAGS)
          if flags and not keyed and flags % RECORD_ALONE > LARGE then
-- PART reserve_keyed
            like = keyed[i]
          end
        end
      end
      if like then
        local key = keys_of[i]
        known = not seen[id] and (not key or taken[key] < like.most) and like.row  -- GUARD places of a concurrency key
        if known and key then taken[key] = taken[key] + 1 end
        if not known and not ends then
          record, ends, handler_begins = readable(found)
          flags = byte(record, RECORD_FLAGS)
        end
      end
      if known then
        -- Never reserved before, and like one that was reserved in this step.
        hand_out(id, known, found)
      elseif ends and not found_rows[i] and flags < PARKED and not seen[id] then
        row = first_row(record, ends, handler_begins)
        head = head and handler_begins == RECORD_UNIQUE_KEY + 1 and head  -- it has no concurrency key
        if head then rows_by_head[head], latest_row = row, row end
        hand_out(id, row, record)
      elseif ends and row and byte(row, FLAGS) < PARKED and flags < PARKED and not seen[id]
        and state_of(row) == 'ready' then
        hand_out(id, later_row(row), record)  -- the same after a due time, or an attempt
      else
        if not look_at then
-- PART reserve_unusual
        end
        look_at(i, id, row, record, ends, handler_begins)
      end
    end
    seen[id] = true
  end
  if put_aside then put_aside() end
  return passed_over
end

local looked = 0
while more and looked < MOST_LOOKED_AT do
  local ids = pop(wanted - count)
  looked = looked + #ids
  more = #ids > 0 and reserve_popped(ids)
end
if count > 0 then
  redis.call('HSET', rows, unpack(new_rows))
  redis.call('ZADD', in_flight, unpack(flight, count > FEW and 1 or 3))
  if count > FEW then redis.call('ZREM', in_flight, LONG) end
  if sixtieth then redis.call('HINCRBY', handed_out, decimal(floor(now / sixtieth)), count) end  -- GUARD quota counted
end
if rate then rate.keep_ledgers() end
standing = standing - looked
