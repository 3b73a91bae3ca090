"""The commands that each role's store user needs, and the check before the first write.

A script without the right to its third command would carry out the first two: a record would be written, and its
message never become ready. So all rights are checked first. docs/reference/rights.md has the same lists as ACL rules.
"""

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
"""Rights beyond a producer's, for replacing a message that waits."""
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
"""An operator's rights to write to the audit log."""
CHANGING = "LREM"
"""Rights beyond an operator's, for giving a message another priority."""

KEEPER = (
    "DEL EXISTS GET HGETALL HLEN HSCAN HSET INFO LLEN LRANGE PEXPIRE PTTL RENAME RPUSH SADD SCAN SCARD SCRIPT|LOAD SET "
    "SMEMBERS SSCAN TIME TYPE UNLINK ZADD ZCARD ZRANGE"
)
"""The commands that move a store."""


def demand(wire: Wire, rights: str, key: str) -> None:
    """Raise PermissionDenied if any of ``rights`` to ``key`` are missing. The error names them."""
    refuse_without(lacking(wire, rights, key))


def lacking(wire: Wire, rights: str, key: str) -> list[bytes]:
    """The missing ones of ``rights`` to ``key``: all of them if access to the key is refused."""
    wanted = [*rights.split(), *wire.rights]
    try:
        missing: list[bytes] = wire.call("rights", [key], wanted)
    except PermissionDenied as refused:
        if " key" not in str(refused):
            raise
        return [right.encode() for right in wanted]
    return missing
