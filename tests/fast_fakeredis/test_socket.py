"""The shorter path to fakeredis' commands has the replies, and leaves the contents, of fakeredis' own."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import fakeredis
from hypothesis import given
from hypothesis import strategies as st

from tests.fast_fakeredis.store import FastStore

if TYPE_CHECKING:
    from collections.abc import Sequence

Execute = Callable[[list[bytes]], Any]

KEY = st.sampled_from([b"a", b"b", b"c"])
MEMBER = st.sampled_from([b"m", b"n", b"", b"\0\xff"])
NUMBER = st.sampled_from([b"0", b"1", b"2", b"-1", b"7.5", b"1e3", b"many", b"inf"])
SCORE = st.sampled_from([b"-inf", b"+inf", b"(1", b"0", b"2", b"(", b"x"])
LEX = st.sampled_from([b"-", b"+", b"[m", b"(m", b"m"])
WORD = st.sampled_from([b"WITHSCORES", b"NX", b"XX", b"GT", b"CH", b"INCR", b"LIMIT", b"BYSCORE", b"REV", b"PX"])
ANY = st.one_of(MEMBER, NUMBER, WORD, KEY)

COMMANDS = {
    "APPEND": [KEY, MEMBER],
    "DEL": [KEY, KEY],
    "EXISTS": [KEY, KEY],
    "EXPIRE": [KEY, st.sampled_from([b"1000", b"-1", b"x"])],
    "GET": [KEY],
    "HDEL": [KEY, MEMBER, MEMBER],
    "HEXISTS": [KEY, MEMBER],
    "HGET": [KEY, MEMBER],
    "HGETALL": [KEY],
    "HINCRBY": [KEY, MEMBER, NUMBER],
    "HKEYS": [KEY],
    "HLEN": [KEY],
    "HMGET": [KEY, MEMBER, MEMBER],
    "HSCAN": [KEY, st.just(b"0"), st.just(b"COUNT"), st.just(b"100")],
    "HSET": [KEY, MEMBER, ANY],
    "HSETNX": [KEY, MEMBER, ANY],
    "HVALS": [KEY],
    "INCRBY": [KEY, NUMBER],
    "LINDEX": [KEY, NUMBER],
    "LLEN": [KEY],
    "LMOVE": [KEY, KEY, st.just(b"LEFT"), st.just(b"RIGHT")],
    "LPOP": [KEY, NUMBER],
    "LPOS": [KEY, MEMBER],
    "LPUSH": [KEY, MEMBER, MEMBER],
    "LRANGE": [KEY, NUMBER, NUMBER],
    "LREM": [KEY, NUMBER, MEMBER],
    "MSET": [KEY, MEMBER, KEY, MEMBER],
    "PEXPIRE": [KEY, st.sampled_from([b"1000000", b"-1", b"x"])],
    "PERSIST": [KEY],
    "RENAME": [KEY, KEY],
    "RPOP": [KEY],
    "RPUSH": [KEY, MEMBER, MEMBER],
    "SADD": [KEY, MEMBER, MEMBER],
    "SCARD": [KEY],
    "SET": [KEY, MEMBER, WORD, st.just(b"100000")],
    "SETNX": [KEY, MEMBER],
    "SISMEMBER": [KEY, MEMBER],
    "SMISMEMBER": [KEY, MEMBER, MEMBER],
    "SREM": [KEY, MEMBER],
    "STRLEN": [KEY],
    "TYPE": [KEY],
    "UNLINK": [KEY],
    "ZADD": [KEY, NUMBER, MEMBER, NUMBER, MEMBER],
    "ZCARD": [KEY],
    "ZCOUNT": [KEY, SCORE, SCORE],
    "ZINCRBY": [KEY, NUMBER, MEMBER],
    "ZPOPMIN": [KEY, NUMBER],
    "ZRANGE": [KEY, NUMBER, NUMBER, WORD],
    "ZRANGEBYLEX": [KEY, LEX, LEX, st.just(b"LIMIT"), NUMBER, NUMBER],
    "ZRANGEBYSCORE": [KEY, SCORE, SCORE, st.just(b"LIMIT"), NUMBER, NUMBER],
    "ZREM": [KEY, MEMBER, MEMBER],
    "ZREMRANGEBYSCORE": [KEY, SCORE, SCORE],
    "ZSCORE": [KEY, MEMBER],
    "NONESUCH": [KEY],
    "BLPOP": [KEY, st.just(b"0.01")],
}
"""Each with arguments of its kind, of which the last may be missing."""
READ = {b"hash": [b"HGETALL"], b"list": [b"LRANGE", b"0", b"-1"], b"set": [b"SMEMBERS"], b"string": [b"GET"]}
READ[b"zset"] = [b"ZRANGE", b"0", b"-1", b"WITHSCORES"]

CALL = b"return redis.call(unpack(ARGV))"
ANSWERS = {
    b"return {1, 'two', {3.7, {}}, false, {'four'}, true}": "nested",
    b"return {1, nil, 3}": "a hole",
    b"return redis.error_reply('FENCED x')": "an error",
    b"return {redis.error_reply('FENCED x')}": "an error in a list",
    b"return redis.status_reply('fine')": "a status",
    b"return nil": "nothing",
    b"return false": "false",
    b"return KEYS": "keys",
    b"return {#ARGV, ARGV[#ARGV]}": "arguments",
    b"local t = {} for i = 1, 3000 do t[i] = i end return t": "a long list",
    b"error('broken')": "an error of Lua",
}


@st.composite
def commands(draw: Callable[..., Any]) -> list[bytes]:
    name = draw(st.sampled_from(sorted(COMMANDS)))
    arguments = [draw(each) for each in COMMANDS[name]]
    if draw(st.integers(0, 5)) == 0:
        arguments = arguments[:-1]
    return [name.encode(), *arguments]


@given(st.lists(st.tuples(st.booleans(), commands()), max_size=40))
def test_commands_and_scripts_do_what_they_do_in_fakeredis(drawn: list[tuple[bool, list[bytes]]]) -> None:
    fast, plain = _fast(), _plain()
    digests = [execute([b"SCRIPT", b"LOAD", CALL]) for execute in (fast, plain)]
    for within_script, command in drawn:
        if within_script:
            command = [b"EVALSHA", digests[0], b"0", *command]
        assert _seen(fast(command)) == _seen(plain(command)), command
        assert _contents(fast) == _contents(plain), command


@given(st.sampled_from(sorted(ANSWERS)), st.lists(ANY, max_size=4), st.integers(0, 1500))
def test_answers_of_scripts_are_those_of_fakeredis(script: bytes, keys: list[bytes], arguments: int) -> None:
    fast, plain = _fast(), _plain()
    for execute in (fast, plain):
        digest = execute([b"SCRIPT", b"LOAD", script])
    command = [b"EVALSHA", digest, b"%d" % len(keys), *keys, *[b"%d" % number for number in range(arguments)]]
    assert _seen(fast(command)) == _seen(plain(command))


def test_an_expired_key_is_missing_in_commands_and_scripts() -> None:
    now = 1000.0
    store = FastStore(lambda: now)
    digest = store.execute(("SCRIPT", "LOAD", CALL))
    for command in (("HSET", "h", "f", "v"), ("PEXPIRE", "h", "500")):
        assert store.execute(command) == 1
    assert store.execute(("HLEN", "h")) == store.execute(("EVALSHA", digest, 0, "HLEN", "h")) == 1
    now += 0.6
    assert store.execute(("HLEN", "h")) == store.execute(("EVALSHA", digest, 0, "HLEN", "h")) == 0
    assert store.execute(("EVALSHA", digest, 0, "HSET", "h", "g", "w")) == 1
    assert store.execute(("PTTL", "h")) == -1


def test_a_forgotten_script_must_be_loaded_again() -> None:
    store = FastStore(time.time)
    digest = store.execute(("SCRIPT", "LOAD", CALL))
    assert store.execute(("EVALSHA", digest, 0, "DEL", "a")) == 0
    store.forget_scripts()
    assert str(store.execute(("EVALSHA", digest, 0, "DEL", "a"))).startswith("NOSCRIPT ")


def _fast() -> Execute:
    store = FastStore(time.time)

    def execute(command: Sequence[bytes]) -> Any:
        if command[0] == b"EVALSHA":
            return store.execute(("EVALSHA", command[1], int(command[2]), *command[3:]))
        return store.execute((command[0].decode(), *command[1:]))

    return execute


def _plain() -> Execute:
    connection: Any = fakeredis.FakeRedisConnection(server=fakeredis.FakeServer(), protocol=2)
    connection.connect()
    socket: Any = connection.get_socket()
    socket.connection = connection

    def execute(command: list[bytes]) -> Any:
        socket._process_command(command)  # noqa: SLF001  less the protocol
        return socket.responses.get_nowait()

    return execute


def _seen(reply: Any) -> Any:
    if isinstance(reply, Exception):
        text = str(reply).splitlines()[0]  # without the stack of Lua
        return "error", re.sub("^[A-Z]+ ", "", text)  # redis-py leaves out some kinds
    return [_seen(each) for each in reply] if isinstance(reply, list) else (type(reply), reply)


def _contents(execute: Execute) -> dict[bytes, Any]:
    found = {}
    for key in sorted(execute([b"KEYS", b"*"])):
        name, *more = READ[execute([b"TYPE", key])]
        value = execute([name, key, *more])
        found[key] = (sorted(value) if name == b"SMEMBERS" else value), execute([b"PTTL", key]) < 0
    return found
