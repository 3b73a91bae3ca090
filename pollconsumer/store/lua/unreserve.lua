-- Give back what a launch has reserved, and nobody handles: the reply to its step was lost, or it died.
-- KEYS b m r z f c t k g w
-- ARGV lineage, fence, fence in 6 bytes, number of ids whose handler has ended, these, number of those whose last attempt
--   this was, these, ids to leave
-- Returns messages given back
-- Refusals: FENCED, FORGOTTEN
-- The attempt is charged where the handler has ended, or there is no other left; a row then says so in place of deaths.
-- What was begun for the only time stays reserved: recovering makes a dead letter of it.

local refusal = not_ours(ARGV[1], ARGV[2])
if refusal then return refusal end
redis.call('LLEN', r)
redis.call('ZCARD', z)
redis.call('LLEN', k)
redis.call('HLEN', c)
redis.call('HLEN', g)
redis.call('ZCARD', w)
local ended, spent, known = {}, {}, {}
local spent_at = 5 + tonumber(ARGV[4])
local known_at = spent_at + 1 + tonumber(ARGV[spent_at])
for i = 5, spent_at - 1 do ended[ARGV[i]] = true end
for i = spent_at + 1, known_at - 1 do spent[ARGV[i]] = true end
for i = known_at, #ARGV do known[ARGV[i]] = true end
local ids, rows = {}, {}
for _, id in ipairs(redis.call('ZRANGE', f, 0, -1)) do
  local row = not known[id] and well_formed(redis.call('HGET', m, id))
  if row and sub(row, 9, 14) == ARGV[3] and not has_flag(byte(row, 1), BEGUN) then
    ids[#ids + 1], rows[#rows + 1] = id, row
  end
end
local order = by_reservation(ids, rows)
for i = #order, 1, -1 do
  local id, row = order[i].id, order[i].row
  local high, low = byte(row, 5, 6)
  local attempts, crashes = high * 256 + low, spent[id] and SPENT or byte(row, 7)
  if not ended[id] and not spent[id] then attempts = math.max(attempts - 1, 0) end
  redis.call('ZREM', f, id)
  come_back(id, sub(row, 1, 4) .. char(floor(attempts / 256), attempts % 256, crashes) .. sub(row, 8, 14)
    .. NEVER .. NEVER .. sub(row, 27))
end
if #order > 0 then wake(k) end
return #order
