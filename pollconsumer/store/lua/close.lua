-- Close keys of one slot: rename each, and write the note in its place. The note is a string, so other scripts fail at
-- its type.
-- KEYS first
--   (a key and its name in a closed store, in turn; before them, if their number is odd, a key that must exist)
-- NEEDS closed
-- ARGV note
-- Returns 1; 0, with nothing changed, if the key that must exist does not
-- Idempotent: a closed key stays as it is.

local begin = #KEYS % 2
if begin == 1 and redis.call('EXISTS', first) == 0 then return 0 end  -- GUARD no lease given since
for i = begin + 1, #KEYS, 2 do
  local kind = kind_of(KEYS[i])
  if kind ~= 'closed' then  -- GUARD closed once
    if kind ~= 'none' then redis.call('RENAME', KEYS[i], KEYS[i + 1]) end
    redis.call('SET', KEYS[i], ARGV[1])
  end
end
return 1
