"""Which commands the store's user must be allowed, by what it is used for; and the look at them before the first write.

A script that lacks the right to its third command has carried out the first two: a record written, its message never
ready. So they are all asked for before any is used. docs/store.md gives the same lists to whoever sets the rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pollconsumer.store.replies import refuse_without

if TYPE_CHECKING:
    from pollconsumer.store.wire import Wire

# Beside EVALSHA, without which nothing can be asked.
PRODUCER = (
    "EXISTS GET HDEL HEXISTS HGET HLEN HMGET HSET INFO LLEN RPUSH SADD SCRIPT|LOAD SET SMEMBERS TIME ZADD ZCARD ZRANGE "
    "ZSCORE"
)
WAIT = "WAIT"
"""What a producer needs beside that where it waits for replicas."""
LAUNCH = (
    "BLPOP DEL EXISTS GET HDEL HEXISTS HGET HGETALL HINCRBY HLEN HMGET HSCAN HSET HVALS INFO LINDEX LLEN LPOP LPOS "
    "LPUSH LRANGE LREM PEXPIRE PTTL RENAME RPOP RPUSH SADD SCRIPT|LOAD SET SISMEMBER SMEMBERS SRANDMEMBER SREM TIME "
    "TYPE UNLINK ZADD ZCARD ZCOUNT ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZREM ZSCORE"
)
OPERATOR = (
    "DEL EXISTS GET HDEL HEXISTS HGET HGETALL HINCRBY HLEN HMGET HSET INFO LLEN LPUSH LRANGE PEXPIRE RENAME RPUSH SADD "
    "SCARD SCRIPT|LOAD SET SETNX SISMEMBER SMEMBERS SREM TIME UNLINK ZADD ZCARD ZCOUNT ZRANGE ZRANGEBYLEX ZREM ZSCORE"
)


def demand(wire: Wire, rights: str, key: str) -> None:
    """Raises PermissionDenied, naming them, where any of ``rights`` to ``key`` are missing."""
    refuse_without(wire.call("rights", [key], rights.split()))
