-- A server stores a hash or a sorted set with few short members (128 or more, by its settings) as a list, which each
-- command searches from its beginning. Adding a long member and removing it at once turns it into a table until it is
-- empty; so do more members than LONGEST_LIST. This pays from some twenty members on.
local LONG = 'longer than a server would keep in a list: see zset-max-listpack-value'
local FEW, LONGEST_LIST = 16, 512
