-- Store a launch's measured handling durations.
-- KEYS durations
-- ARGV maximum weight of a mean, in messages; for each handler: name, sum in seconds, count

for i = 2, #ARGV, 3 do
  local sum, count = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  local held = redis.call('HGET', durations, ARGV[i])
  local mean, remembered = string.match(held or '', '^([%d.e+-]+) (%d+)$')
  mean = tonumber(mean or '')
  if mean and mean >= 0 and mean < math.huge then  -- else corrupt
    remembered = math.min(tonumber(remembered), tonumber(ARGV[1]))
    sum, count = sum + mean * remembered, count + remembered
  end
  redis.call('HSET', durations, ARGV[i], string.format('%.9g %d', sum / count, count))
end
return 1
