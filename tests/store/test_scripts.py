"""The scripts as texts: what they bind, what they name, and that they share the layout of a row with Python."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.errors import PollConsumerError
from pollconsumer.store.keyspace import QUEUE_KEYS, Keys
from pollconsumer.store.records import rows
from pollconsumer.store.scripts import Scripts
from tests.store import script
from tests.store.commands_used import LUA, code_of, scripts
from tests.store.compiled import MOST_LOCALS, MOST_UPVALUES, functions
from tests.store.script import numbered

if TYPE_CHECKING:
    from tests.store.servers import Server

KNOWN = (
    "and break do else elseif end false for function if in ipairs local math nil not or pairs pcall repeat "
    "redis return select string table then tonumber tostring true type unpack until while KEYS ARGV"
)
DECLARED = re.compile(
    r"local function (\w+)\(([^)]*)\)|local ([\w, ]+?)(?= =|\n|$)|for ([\w, ]+?) (?:=|in)|function ?\(([^)]*)\)"
)
FIELDS = "FLAGS ENDING PRIORITY ATTEMPTS CRASHES GENERATION FENCE RESERVED STARTED ENDED SCHEDULED DUE ENQUEUED FAILED"


def words(code: str) -> str:
    """Without comments, texts and the names of fields."""
    code = re.sub(r"^#!.*|--.*", "", code, flags=re.MULTILINE)
    code = re.sub(r"'(\\.|[^'\\])*'", "''", code)
    code = re.sub(r"\{[^{}]*\}", lambda table: re.sub(r"\b\w+ =(?!=)", " ", table[0]), code)
    return re.sub(r"\.\w+", " ", code.replace("..", ","))


def names_in(code: str) -> set[str]:
    return set(re.findall(r"\b[A-Za-z_]\w*", code))


@pytest.mark.parametrize("name", sorted(scripts()))
def test_a_script_binds_every_name_that_it_and_the_functions_which_it_calls_use(name: str) -> None:
    linked = words(Scripts()[name].code.decode())
    declared = {each.strip() for found in DECLARED.findall(linked) for group in found for each in group.split(",")}
    constants = {each for each in names_in(linked) if each.isupper()} - {"KEYS", "ARGV"}
    used = {each for each in names_in(words(code_of(name))) if not each.isupper()}
    assert (used - declared - set(KNOWN.split()), constants - declared) == (set(), set())


@pytest.mark.parametrize("name", sorted(scripts()))
def test_a_script_is_given_no_key_that_it_does_not_use(name: str) -> None:
    script = Scripts()[name]
    assert set(script.keys) - names_in(words(code_of(name))) == set()


@pytest.mark.parametrize("name", sorted(scripts()))
def test_no_function_of_a_script_is_near_the_limits_of_the_language(name: str) -> None:
    found = functions(
        b"-- " + Scripts()[name].code
    )  # a comment in place of the line for the server alone: lines keep their numbers
    assert [each for each in found if each.upvalues > MOST_UPVALUES - 8 or each.locals > MOST_LOCALS - 20] == []


def test_scripts_and_python_agree_where_the_fields_of_a_row_begin() -> None:
    text = "".join((LUA / "parts" / name).read_text("utf-8") for name in ("rows.lua", "records.lua"))
    found: dict[str, int] = {}
    for names, numbers in re.findall(r"^local ([A-Z_, ]+) = ([\d, ]+)", text, re.MULTILINE):
        found.update(zip(names.split(", "), map(int, numbers.split(", ")), strict=True))
    fields = [*FIELDS.split(), "NEXT_ATTEMPT", "HANDLER"]
    assert {name: found[name] - 1 for name in fields} == {name: getattr(rows, name) for name in fields}
    flags = {"UNIQUE": "UNIQUE_KEY", "CONCURRENCY": "CONCURRENCY_KEY"}
    for name in ("UNIQUE", "PARKED", "CONCURRENCY", "WAITING", "BEGUN", "CHECKPOINT", "SPENT"):
        assert found[name] == getattr(rows, flags.get(name, name)), name


def test_the_keys_of_a_script_are_those_of_a_queue() -> None:
    keys, script = Keys("tests"), Scripts()["enqueue"]
    assert keys.names_for(script.keys, "mail") == [keys.queue("mail", word) for word in script.keys]


def test_no_two_keys_of_a_queue_are_stored_under_one_name() -> None:
    assert len({key.suffix for key in QUEUE_KEYS.values()}) == len(QUEUE_KEYS)


def test_no_name_mixes_cases_so_that_the_names_of_constants_are_whole_words() -> None:
    mixed = re.compile(r"\b\w*[a-z][A-Z]\w*")
    found = {path.name: mixed.findall(re.sub(r"--.*", "", path.read_text("utf-8"))) for path in LUA.rglob("*.lua")}
    assert {name: names for name, names in found.items() if names} == {}


def test_the_servers_error_is_shown_whole_and_the_printed_script_has_its_line(valkey: Server) -> None:
    code = Scripts()["step"].code.decode()
    wrong = "redis.call('DEL', successor_waits) " + "and_then_a_word_that_has_no_place_in_it " * 3
    with pytest.raises(PollConsumerError, match="near 'and_then_a_word_that_has_no_place_in_it'") as refused:
        valkey.wire().command("SCRIPT", "LOAD", code.replace("redis.call('DEL', successor_waits)", wrong))
    found = re.search(r"user_script:(\d+):", str(refused.value))
    assert found is not None
    (marked,) = (line for line in numbered("step", int(found[1])) if line.startswith(">"))
    assert "redis.call('DEL', successor_waits)" in marked


def test_a_function_is_named_with_what_it_uses() -> None:
    names = [f"a{number}" for number in range(54)]
    greedy = f"local function greedy()\n  return {' + '.join(names)}\nend"
    uses, whole = functions(f"-- first line\nlocal {', '.join(names)} = 1\n{greedy}\nreturn greedy\n".encode())
    assert uses == ("greedy", 3, 54, 0)
    assert whole == ("the script itself", 0, 0, 55)


def test_a_script_is_printed_whole_or_around_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["nudge"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=1)[0] for line in printed] == [str(number) for number in range(1, len(printed) + 1)]
    assert script.main(["step", "700"]) == 0
    assert [line[1:].split()[0] for line in capsys.readouterr().out.splitlines()] == [str(n) for n in range(690, 711)]
