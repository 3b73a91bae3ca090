-- The ledgers of rates, for a step that hands out messages with a rate. A field of `rates` is a rate and a key, as
-- records have them. Its value: until when it counts, in six bytes; a number in two bytes; so many instants at which
-- messages were handed out in the last period; then instants booked for messages in the schedule. Instants have six
-- bytes, the oldest first. In no span as long as the period are more messages handed out than the rate says. Bookings
-- keep the order: a message does not get an instant that is booked for another one. A message handed out later than
-- booked delays those booked a period after it, which are then booked again.

local stamp, ledgers, made = be6(now), {}, 0  -- ledgers by field; how many fields are new

local function later_than(since, instants)
  local from = 1
  while from < #instants and sub(instants, from, from + 5) <= since do from = from + 6 end
  return sub(instants, from)
end

-- The ledger of a record's rate; nil if the record has a key, and neither it nor its queue has a rate.
local function ledger_of(record)
  local field = rate_and_key(record)
  if not field or ledgers[field] then return field and ledgers[field] end
  local high, low = byte(field, 1, 2)
  local most, period = high * 256 + low, number6(field, 3)
  if most == 0 then
    if not limited or most_of_key == '' then return nil end
    most, period = tonumber(most_of_key), tonumber(period_of_key)
  end
  local held, handed, booked = redis.call('HGET', rates, field), '', ''
  high, low = byte(held or '', 7, 8)
  if low and #held % 6 == 2 and #held >= 8 + 6 * (high * 256 + low) then  -- GUARD a ledger that is none
    local ends, since = 8 + 6 * (high * 256 + low), be6(math.max(0, now - period))
    -- GUARD charges end with the period; bookings end with the period
    handed, booked = later_than(since, sub(held, 9, ends)), later_than(since, sub(held, ends + 1))
    -- GUARD a clock that went back; bookings of a clock that went back
    if sub(handed, -6) > stamp then handed, booked = '', '' end  -- the clock was set back
  else
    made = made + 1
  end
  -- Where `first_position` begins: at which instant, and at which booking.
  ledgers[field] = {most = most, period = period, handed = handed, booked = booked, from = 1, at = 1}
  return ledgers[field]
end

local function drop_bookings(ledger, bytes)
  ledger.booked, ledger.at = sub(ledger.booked, bytes + 1), math.max(1, ledger.at - bytes)
end

-- Drop the first booking, if it is due.
local function unbook(ledger)
  if ledger.booked ~= '' and sub(ledger.booked, 1, 6) <= stamp then drop_bookings(ledger, 6) end
end

-- The first instant with room for a message that has waited, unless it is booked for another such message; and its
-- position among the bookings. Nil if all are booked. Goes on after the last one that it has found.
local function first_position(ledger)
  while ledger.from < #ledger.handed do
    local instant, at = be6(number6(ledger.handed, ledger.from) + ledger.period), ledger.at
    while at < #ledger.booked and sub(ledger.booked, at, at + 5) < instant do at = at + 6 end
    ledger.from, ledger.at = ledger.from + 6, at + 6  -- GUARD a place for each that waited
    if sub(ledger.booked, at, at + 5) ~= instant then return instant, at end
  end
end

-- The first instant after all bookings, and its position.
local function last_position(ledger)
  local handed, booked = #ledger.handed / 6, #ledger.booked / 6
  local at = handed + booked - ledger.most + 1  -- of all these, the one a period before it
  local before = at <= handed and number6(ledger.handed, 6 * at - 5)
    or math.max(now, number6(ledger.booked, 6 * (at - handed) - 5))
  return be6(before + ledger.period), #ledger.booked + 1
end

rate = {}

-- Move a message into the schedule if it must wait. Returns whether it must. A message that has waited was booked
-- before.
rate.waits = function(id, row, record)
  local ledger, waited = ledger_of(record), has_flag(byte(row, FLAGS), BOOKED)
  if not ledger then return false end
  -- GUARD most of a rate; places that are booked
  if #ledger.handed / 6 + (waited and 0 or #ledger.booked / 6) < ledger.most then return false end
  local instant, at
  if waited then
    unbook(ledger)  -- GUARD bookings of those that wait again
    instant, at = first_position(ledger)  -- GUARD the first place for who has waited
  end
  if not instant then instant, at = last_position(ledger) end
  ledger.booked = sub(ledger.booked, 1, at - 1) .. instant .. sub(ledger.booked, at)
  if #ledger.booked > 12 * ledger.most then drop_bookings(ledger, 6) end
  redis.call('HSET', rows, id, set(row, FLAGS, char(without_flag(byte(row, FLAGS), BOOKED) + BOOKED),
    NUMBER_IN_LINE, NEVER, ENQUEUED, NEVER, NEXT_ATTEMPT, instant))
  put_in_schedule(id, number6(instant, 1))
  return true
end

-- Record that a message is handed out. Returns its row.
rate.charge = function(row, record)
  local ledger, waited = ledger_of(record), has_flag(byte(row, FLAGS), BOOKED)
  if ledger then
    ledger.handed = ledger.handed .. stamp
    if waited then unbook(ledger) end  -- GUARD bookings of those handed out
  end
  return waited and set(row, FLAGS, char(byte(row, FLAGS) - BOOKED)) or row
end

-- For each new field, two others are examined, and deleted if they do not count any more.
rate.keep_ledgers = function()
  local kept = {}
  for field, ledger in pairs(ledgers) do
    local last, last_booked = sub(ledger.handed, -6), sub(ledger.booked, -6)
    if last_booked > last then last = last_booked end
    if last ~= '' then
      local handed = #ledger.handed / 6
      kept[#kept + 1], kept[#kept + 2] = field, be6(number6(last, 1) + ledger.period)
        .. char(floor(handed / 256), handed % 256) .. ledger.handed .. ledger.booked
    end
  end
  if #kept > 0 then redis.call('HSET', rates, unpack(kept)) end
  if made == 0 then return end
  local page = redis.call('HSCAN', rates, redis.call('HGET', counters, 'rates looked at') or '0', 'COUNT', 2 * made)
  local entries, lapsed = page[2], {}
  for i = 1, #entries, 2 do
    if sub(entries[i + 1], 1, 6) <= stamp then lapsed[#lapsed + 1] = entries[i] end
  end
  redis.call('HSET', counters, 'rates looked at', tostring(page[1]))
  if #lapsed > 0 then redis.call('HDEL', rates, unpack(lapsed)) end  -- GUARD ledgers forgotten
end
