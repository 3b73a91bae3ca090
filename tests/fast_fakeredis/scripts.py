"""What of the shorter path of `socket.py` is in Lua."""

START = b"""function(found, present)
  local runs, time = {}, nil
  local missing = {
    {DEL = 0, EXISTS = 0, GET = false, HLEN = 0, LLEN = 0, LPOP = false, SCARD = 0, ZCARD = 0},
    {HEXISTS = 0, HGET = false, SISMEMBER = 0, ZSCORE = false},
  }
  local function whole(number)
    if type(number) == 'string' then return #number < 10 and string.find(number, '^%d+$') ~= nil end
    return number and number % 1 == 0
  end
  local function missing_in_range(name, count, from, to, option, first, most)
    if name == 'LPOP' then return count == 2 and whole(from) and type(from) == 'number' and from > 0, false end
    if name == 'ZCOUNT' then return count == 3 and from == '-inf' and type(to) == 'number', 0 end
    if name == 'LRANGE' then return count == 3 and whole(from) and whole(to), {} end
    if name == 'ZRANGE' then return count == 4 and whole(from) and whole(to) and option == 'WITHSCORES', {} end
    if name == 'ZRANGEBYSCORE' then
      local limited = option == 'LIMIT' and whole(first) and whole(most)
      return count == 6 and from == '-inf' and type(to) == 'number' and limited, {}
    end
  end
  local function all_missing(...)
    for at = 1, select('#', ...) do
      if present[select(at, ...)] then return false end
    end
    return true
  end
  redis.call = function(name, ...)
    local count, key = select('#', ...), ...
    if count == 0 and name == 'TIME' then return time end
    if count > 0 and not present[key] then
      local reply = missing[count] and missing[count][name]
      if reply ~= nil then return reply end
      if name == 'EXISTS' and all_missing(...) then return 0 end
      local known, nothing = missing_in_range(name, count, select(2, ...))
      if known then return nothing end
    end
    local known = runs[count]
    if not known then
      known = {}
      runs[count] = known
    end
    local run = known[name]
    if not run then
      run = found(name, count)
      known[name] = run
    end
    return run(...)
  end
  return function(script, keys, table, seconds, microseconds, ...)
    KEYS, ARGV, time = keys, table or {...}, {seconds, microseconds}
    return script()
  end
end"""
"""What starts a script, during which time stands still. Most keys that scripts read are missing: this needs no call of
the database."""
PARTS = b"""function(reply)
  local count = 0
  while reply[count + 1] ~= nil do count = count + 1 end
  if reply.err or reply.ok or reply.double or reply.map or count > 1000 then return false end
  return true, unpack(reply, 1, count)
end"""
"""The elements of a reply that is an array; false for another reply, or an array too long for the stack."""
