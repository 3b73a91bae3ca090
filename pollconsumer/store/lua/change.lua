-- Change a message that is not reserved: its due time, its priority, its payload.
-- KEYS records rows ready ready_by_priority schedule counters ready_marker schedule_marker places_taken
-- KEYS waiting_for_place order_heads rates answered
-- NEEDS changed once
-- ARGV id; when ('+n' in n ms, '=n' at epoch ms n), priority, payload: each '' if it does not change
-- Returns '' if it was changed; 'ordered' if it has an order key, so that its priority cannot be changed; its state if
--   it is reserved or has ended; 'newer' if a newer version wrote its record; nil if there is no such message

local id, when, priority, payload = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local row, state, record = message_of(id)
if state ~= 'scheduled' and state ~= 'ready' then return state end  -- GUARD state
if payload ~= '' and not record then return nil end
if priority ~= '' and order_key(record) then return 'ordered' end  -- GUARD no priority in an order
local exactly = exactly_now()
local due = when ~= '' and tonumber(sub(when, 2)) or nil
if sub(when, 1, 1) == '+' then due = exactly + due end
if due and due <= exactly and state == 'ready' then due = nil end  -- GUARD one that is ready keeps its turn
-- EXPECT ready ready_marker schedule_marker schedule ready_by_priority waiting_for_place counters rates
local changed = row
if payload ~= '' then
  changed, record = with_payload(changed, record, payload)
  redis.call('HSET', records, id, record)
end
if priority ~= '' then
  local number = priority + 32768
  changed = set(changed, PRIORITY, char(floor(number / 256), number % 256))
end
if due then
  changed = set(changed, DUE, be6(floor(due)))
  -- After a failed attempt, the due time is that of the next attempt.
  -- GUARD the next attempt is due then
  if six(changed, NEXT_ATTEMPT) ~= NEVER then changed = set(changed, NEXT_ATTEMPT, six(changed, DUE)) end
  wait_anew(id, row, changed, record, state, due, exactly)
elseif state == 'ready' and priority_of(changed) ~= priority_of(row) then  -- GUARD the new priority counts
  wait_anew(id, row, changed, record, state, exactly, exactly)
elseif redis.call('HEXISTS', rows, id) == 1 then
  redis.call('HSET', rows, id, changed)
end
return ''
