-- NEEDS numbers

-- The commands in ARGV, from `first` on, that the caller may not use on `key`. None of them is run. Without this check
-- a script that lacks the right to its third command would carry out the first two. Not for commands that count their
-- keys: with too few arguments acl_check_cmd crashes the server.
local function lacking_rights(key, first)
  local lacking = {}
  if not redis.acl_check_cmd then return lacking end
  for i = first, #ARGV do
    local call = {}
    for word in string.gmatch(ARGV[i], '[^|]+') do call[#call + 1] = word end
    call[#call + 1] = key
    if not find(' DEL EXISTS UNLINK ', ' ' .. ARGV[i] .. ' ', 1, true) then
      call[#call + 1] = ARGV[i] == 'RENAME' and key or '1'
    end
    local known, allowed = pcall(redis.acl_check_cmd, unpack(call))
    if not (known and allowed) then lacking[#lacking + 1] = ARGV[i] end  -- GUARD rights
  end
  return lacking
end
