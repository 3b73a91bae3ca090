"""The commands that the store's user of each role may need, and the check for them before the first write.

If the third command of a script were refused, the first two would have been carried out: a record would be stored, and
its message would never become ready. So all rights are checked first. docs/reference/rights.md lists them as ACL
rules."""

from __future__ import annotations

from pollconsumer.core.errors import PermissionDenied
from pollconsumer.store.client.replies import refuse_without
from pollconsumer.store.client.wire import Wire

# Besides EVALSHA, without which no check can run.
PRODUCER = (
    "EXISTS GET HDEL HEXISTS HGET HLEN HMGET HSET HSETNX INFO LLEN RPUSH SADD SCRIPT|LOAD SET SISMEMBER SMEMBERS "
    "SMISMEMBER TIME ZADD ZCARD ZRANGE ZSCORE"
)
REPLACING = "HINCRBY LPUSH LREM ZRANGEBYLEX ZREM"
"""What a producer needs besides, to replace a waiting message."""
LAUNCH = (
    "BLPOP DEL EXISTS GET HDEL HEXISTS HGET HGETALL HINCRBY HLEN HMGET HSCAN HSET HSETNX HVALS INFO LINDEX LLEN LPOP "
    "LPOS LPUSH LRANGE LREM PEXPIRE PTTL RENAME RPOP RPUSH SADD SCARD SCRIPT|LOAD SET SISMEMBER SMEMBERS SMISMEMBER "
    "SRANDMEMBER SREM TIME TYPE UNLINK ZADD ZCARD ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZREM ZSCORE"
)
OPERATOR = (
    "DEL EXISTS GET HDEL HEXISTS HGET HGETALL HINCRBY HLEN HMGET HSCAN HSET HSETNX INFO LLEN LPUSH LRANGE LTRIM "
    "PEXPIRE RENAME RPUSH SADD SCARD SCRIPT|LOAD SET SETNX SISMEMBER SMEMBERS SMISMEMBER SRANDMEMBER SREM TIME UNLINK "
    "ZADD ZCARD ZCOUNT ZMSCORE ZRANGE ZRANGEBYLEX ZREM ZSCORE"
)
NOTING = "LPUSH LTRIM"
"""What an operator needs to write to the audit log."""
CHANGING = "LREM"
"""What an operator needs besides, to change a message's priority."""

KEEPER = (
    "DEL EXISTS GET HGETALL HLEN HSCAN HSET INFO LLEN LRANGE PEXPIRE PTTL RENAME RPUSH SADD SCAN SCARD SCRIPT|LOAD SET "
    "SMEMBERS SSCAN TIME TYPE UNLINK ZADD ZCARD ZRANGE"
)
"""What moving a store needs."""


def demand(wire: Wire, rights: str, key: str) -> None:
    """Raise PermissionDenied, with their names, if any of ``rights`` to ``key`` are missing."""
    refuse_without(lacking(wire, rights, key))


def lacking(wire: Wire, rights: str, key: str) -> list[bytes]:
    """Those of ``rights`` to ``key``, and of `Wire.rights`, that are missing. All if the key itself is refused."""
    wanted = [*rights.split(), *wire.rights]
    try:
        missing: list[bytes] = wire.call("rights", [key], wanted)
    except PermissionDenied as refused:
        if " key" not in str(refused):
            raise
        return [right.encode() for right in wanted]
    return missing
