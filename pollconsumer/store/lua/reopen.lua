-- Reopen closed keys of one slot.
-- Its keys are pairs: a key, and its name in a closed store
-- NEEDS closed
-- Returns 1
-- Refusals: FOREIGN, with nothing changed, if a key was written although it is closed
-- Idempotent: an open key stays as it is.

for i = 1, #KEYS, 2 do
  local kind = kind_of(KEYS[i])
  if kind ~= 'closed' and kind ~= 'none' and redis.call('EXISTS', KEYS[i + 1]) == 1 then
    return redis.error_reply('FOREIGN ' .. KEYS[i])
  end
end
for i = 1, #KEYS, 2 do
  if kind_of(KEYS[i]) == 'closed' then redis.call('DEL', KEYS[i]) end
  if redis.call('EXISTS', KEYS[i + 1]) == 1 then redis.call('RENAME', KEYS[i + 1], KEYS[i]) end
end
return 1
