-- Store the handling durations that a launch measured.
-- KEYS recent before histograms
-- ARGV messages of a generation, number of the last bucket, messages measured; for each handler: name, its histogram
-- A histogram is text: the sum in seconds, then each bucket's number and count. Histograms in ``histograms`` only grow.
-- Those in ``recent`` and ``before`` are of one group. Once ``recent`` has the messages of a generation, which its
-- field without a name counts, it replaces ``before``.

local function read(text)
  local sum, rest = string.match(text or '', '^([%d.e+-]+)([%d: ]+)$')
  sum = tonumber(sum or '')
  if not sum or sum < 0 or sum == math.huge then return 0, {} end  -- none, or corrupt
  local counts = {}
  for bucket, count in string.gmatch(rest, ' (%d+):(%d+)') do
    if tonumber(bucket) > tonumber(ARGV[2]) then return 0, {} end  -- corrupt
    counts[tonumber(bucket)] = tonumber(count)
  end
  return sum, counts
end

for i = 4, #ARGV, 2 do
  local handler = ARGV[i]
  local sum, measured = read(ARGV[i + 1])
  for _, key in ipairs({recent, histograms}) do
    local total, counts = read(redis.call('HGET', key, handler))
    for bucket, count in pairs(measured) do counts[bucket] = (counts[bucket] or 0) + count end
    local buckets, text = {}, {string.format('%.15g', total + sum)}
    for bucket in pairs(counts) do buckets[#buckets + 1] = bucket end
    table.sort(buckets)
    for i, bucket in ipairs(buckets) do text[i + 1] = string.format('%d:%.0f', bucket, counts[bucket]) end
    redis.call('HSET', key, handler, table.concat(text, ' '))
  end
end
local messages = (tonumber(redis.call('HGET', recent, '') or '') or 0) + ARGV[3]
if messages < tonumber(ARGV[1]) then
  redis.call('HSET', recent, '', string.format('%.0f', messages))
else
  redis.call('HDEL', recent, '')
  redis.call('RENAME', recent, before)
end
return 1
