-- Store how far messages have come that a launch has in hand, or has settled.
-- KEYS rows announced progress
-- NEEDS fences rows
-- ARGV lineage, fence, fence in 6 bytes; for each: id, its progress as JSON
-- Returns how many messages no other launch has reserved since: those of others stay as they are
-- Refusals: FENCED, FORGOTTEN

local refusal = refusal_of(ARGV[1], ARGV[2])
if refusal then return refusal end
local now, count = be6(now_ms()), 0
for i = 4, #ARGV, 2 do
  local row = well_formed(redis.call('HGET', rows, ARGV[i]))
  if row and six(row, FENCE) == ARGV[3] then
    redis.call('HSET', progress, ARGV[i], now .. ARGV[i + 1])
    count = count + 1
  end
end
return count
