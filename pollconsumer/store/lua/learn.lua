-- Remember handling durations beyond the launch that measured them.
-- KEYS durations
-- ARGV most messages that a mean remembers; for each handler: name, sum in seconds, count

for i = 2, #ARGV, 3 do
  local sum, count = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  local held = redis.call('HGET', durations, ARGV[i])
  local mean, remembered = string.match(held or '', '^([%d.e+-]+) (%d+)$')
  mean = tonumber(mean or '')
  if mean and mean >= 0 and mean < math.huge then  -- else somebody else wrote it
    remembered = math.min(tonumber(remembered), tonumber(ARGV[1]))
    sum, count = sum + mean * remembered, count + remembered
  end
  redis.call('HSET', durations, ARGV[i], string.format('%.9g %d', sum / count, count))
end
return 1
