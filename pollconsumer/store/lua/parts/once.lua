-- Run a function only once for each call. A repetition, after a lost reply, gets the stored answer.

-- Answers are kept for longer than any call is repeated.
local ANSWERED_FOR_MS = 60000

-- The key `answered` has the call's number in its name. If the caller gives no such key, the function is always run.
local function once(act)
  local kept = answered and redis.call('LRANGE', answered, 0, -1) or {}
  if kept[1] == 'table' then return {unpack(kept, 2)} end  -- GUARD the answers of the first attempt
  if kept[1] then return kept[1] == 'number' and tonumber(kept[2]) or kept[2] end  -- GUARD the answer of the first attempt
  local answer = act() or nil
  if answered then
    redis.call('RPUSH', answered, type(answer), unpack(type(answer) == 'table' and answer or {answer}))
    redis.call('PEXPIRE', answered, ANSWERED_FOR_MS)
  end
  return answer
end
