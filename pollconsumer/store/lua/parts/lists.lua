-- A server keeps a hash, or a sorted set, of up to 128 short members or more as a list, which each command searches from its
-- beginning. A long one, added and removed at once, makes it a table until it is empty, as more than LONGEST_LIST do. It pays
-- from some twenty on.
local LONG = 'longer than a server would keep in a list: see zset-max-listpack-value'
local FEW, LONGEST_LIST = 16, 512
