-- Store the progress of messages that a launch has in flight, or has settled, and the lines that they have logged.
-- KEYS rows announced progress logs
-- NEEDS fences rows
-- ARGV lease name, fence, fence in 6 bytes; for each: id, progress as JSON, '', 0; or id, an attempt's log entry on one
--   line, how the entry begins, which identifies the attempt, and how many bytes all entries may have
-- Returns how many messages no other launch has reserved since; the others are not changed
-- Refusals: FENCED, FORGOTTEN

local refusal = refusal_of(ARGV[1], ARGV[2])
if refusal then return refusal end
local now, count = be6(now_ms()), 0
for i = 4, #ARGV, 4 do
  local row = well_formed(redis.call('HGET', rows, ARGV[i]))
  if row and six(row, FENCE) == ARGV[3] then
    local id, told, head, most = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3])
    if head == '' then
      redis.call('HSET', progress, id, now .. told)
    else
      local earlier = {}
      for entry in string.gmatch(redis.call('HGET', logs, id) or '', '[^\n]+') do
        if sub(entry, 1, #head) ~= head then earlier[#earlier + 1] = entry end  -- GUARD the same attempt is replaced
      end
      for k = #earlier, 1, -1 do
        if #told + #earlier[k] >= most then break end  -- GUARD what stays of earlier attempts
        told = earlier[k] .. '\n' .. told
      end
      redis.call('HSET', logs, id, told)
    end
    count = count + 1
  end
end
return count
