-- NEEDS rows

-- Ids in flight, with their rows, in the order of reservation; `ids` are in that of their scores.
local function by_reservation(ids, found_rows)
  local order = {}
  for i = 1, #ids do
    local row = well_formed(found_rows[i])
    order[i] = {id = ids[i], row = row, at = row and number6(row, RESERVED) or 0, rank = i}
  end
  table.sort(order, function(one, other)
    if one.at ~= other.at then return one.at < other.at end  -- GUARD order of reservation
    return one.rank < other.rank
  end)
  return order
end
