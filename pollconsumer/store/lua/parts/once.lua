-- An act is carried out only once. A repetition, after a lost reply, is answered as the first try was.

-- An answer is kept for longer than anybody repeats a call.
local ANSWERED_FOR_MS = 60000

-- `answered` names the call. Without it the act is carried out at each call.
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
