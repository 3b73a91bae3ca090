-- Put recurrences at run time. One whose rule is unchanged goes on with its instants. A new one, or one with another
-- rule, begins with its first instant; an occurrence that is due already stays due. One that has ended begins again if
-- its new definition has further instants.
-- KEYS recurrences next_instants recurrence_counters schedule_marker recurrence_owners recurrences_unreadable
-- KEYS recurrences_ended
-- NEEDS recurrences
-- ARGV for each: name; definition without its creation; how the definition begins if it has the same rule; first
--   instant in epoch ms ('': none, since it is disabled; 'ended': none left); latest instant, maximum number of
--   occurrences (each '' for no limit); what is due by its definition in another queue (see `recurrences.lua`; '' for
--   nothing)
-- Returns names that configurations define: if there are any, nothing was put

local taken = {}
for i = 1, #ARGV, 7 do
  if redis.call('HEXISTS', recurrence_owners, ARGV[i]) == 1 then taken[#taken + 1] = ARGV[i] end
end
if #taken > 0 then return taken end  -- GUARD names of configurations
-- EXPECT recurrences recurrence_counters next_instants recurrences_unreadable recurrences_ended schedule_marker
local now = now_ms()
for i = 1, #ARGV, 7 do
  local name, definition, rule, first = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3])
  local latest, most = tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5])
  local held = redis.call('HGET', recurrences, name)
  local before, created = string.match(held or '', '^(.*),"created":(%d+)}$')
  if not before or before .. '}' ~= definition then  -- GUARD one that is as it was goes on
    redis.call('HSET', recurrences, name, sub(definition, 1, -2) .. ',"created":' .. (created or decimal(now)) .. '}')
    local due = next_instant(name)
    if not held or sub(held, 1, #rule) ~= rule then  -- GUARD one of the same rule goes on
      redis.call('HDEL', recurrence_counters, name .. ':enqueued', name .. ':skipped')
      local before = ARGV[i + 6] ~= '' and ARGV[i + 6] or nil
      if first and held and due and due <= now and due < first then
        -- GUARD what is due by the rule before; what is due stays due
        before, first = due_by(name, held, now, first), due
      end
      begin(name, first, before)
      if ARGV[i + 3] == 'ended' then finish(name, now) end
      if first and redis.call('HEXISTS', recurrence_counters, name .. ':paused') == 1 then
        redis.call('HSET', recurrence_counters, name .. ':paused', decimal(first))  -- GUARD periods of a rule put in a pause
      end
    -- GUARD one that is spent stays ended
    elseif not due and first and (not most or count_of(name, 'enqueued') < most) then
      begin(name, first)
    elseif not due and ARGV[i + 3] ~= '' then
      finish(name, now)
    -- GUARD one that is limited ends
    elseif due and latest and due > latest or due and most and count_of(name, 'enqueued') >= most then
      finish(name, now)
    end
  -- GUARD a clock that went back; one that has begun goes on
  elseif first and first < (next_instant(name) or 0) and tonumber(created) > now and count_of(name, 'enqueued') == 0 then
    begin(name, first)  -- the clock was set back before it began
  end
end
return {}
