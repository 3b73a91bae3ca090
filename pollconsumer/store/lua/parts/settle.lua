-- The first part of a step: settle. Its ARGV are a step's.

-- Of completions: unique keys that are freed, and the ids of their holders; ids whose large record is dropped.
local holders, unique, dropped = {}, {}, {}

-- Hot path: completions. Those with keys, a result or follow-ups cost more, and leave the others as quick.
if completions > 0 then
  local argv, ids = ARGV, {unpack(ARGV, 10, 9 + completions)}
  local found_rows = redis.call('HMGET', rows, unpack(ids))
  local new_rows, gone, refused, count, held, at, i = {}, {}, {}, 0, 0, 10 + completions, 0
  while at < extras do
    local size, row, new_row = tonumber(argv[at]), argv[at + 1], argv[at + 2]
    at = at + 3
    local before, flags = count, byte(new_row, FLAGS)
    local key_at, place_at, large, checkpoint = nil, nil, nil, nil
    if flags > 0 then
      if has_flag(flags, UNIQUE) then
        key_at, at = at - 1, at + size
      end
      if has_flag(flags, CONCURRENCY) then
        place_at, at = at - 1, at + size
      end
      large, checkpoint = has_flag(flags, LARGE), has_flag(flags, CHECKPOINT)
    end
    for k = 1, size do
      i = i + 1
      local id = ids[i]
      if found_rows[i] == row then  -- GUARD row compare, completed
        count = count + 1
        new_rows[2 * count - 1], new_rows[2 * count] = id, new_row
        gone[count] = id
        if flags > 0 then
          if key_at then
            held = held + 1
            holders[held], unique[held] = id, argv[key_at + k]
          end
          if place_at then
            local key = argv[place_at + k]
            local number = taken[key]
            if not number then counted[#counted + 1] = key end
            taken[key] = (number or 0) - 1  -- GUARD places given back
          end
          if large then dropped[#dropped + 1] = id end
          if checkpoint then
-- PART drop_checkpoint
          end
        end
      else
        refused[i] = true
        if found_rows[i] ~= new_row then stale[#stale + 1] = id end  -- GUARD a repeated completion is not stale
      end
    end
    if count > before then
      -- GUARD what is stale is not counted
      count_settled(row, 'complete', count - before, number6(new_row, ENDED) - number6(new_row, STARTED))
    end
  end
  if count > 0 then
    redis.call('RPUSH', completed, unpack(gone))
    redis.call('HSET', rows, unpack(new_rows))
    redis.call('ZREM', in_flight, unpack(gone))  -- GUARD completed leaves flight
    settled = true
  end
  if others > extras then
-- PART leave
  end
end

local released = {}
if others <= #ARGV then
-- PART settle_otherwise
end
if #unique + #counted + #dropped + #released > 0 then
-- PART let_go
end
