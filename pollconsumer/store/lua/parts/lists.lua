-- A server stores a hash or a sorted set with few short members (up to 128 or more, by its settings) as a list, which
-- each command searches from its beginning. A long member, even if removed at once, turns it into a table until it is
-- empty; so do more members than LONGEST_LIST. From some twenty members on a table is quicker.
local LONG = 'longer than a server would keep in a list: see zset-max-listpack-value'
local FEW, LONGEST_LIST = 16, 512
