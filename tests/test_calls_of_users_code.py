"""One function begins our threads, and one calls code of users: no other call is left to be found."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import pollconsumer

HOME = Path(pollconsumer.__file__).parent
STARTS = {"Thread", "Timer", "start_new_thread", "start_joinable_thread", "to_thread", "run_in_executor"}
STARTS |= {"ThreadPoolExecutor", "ProcessPoolExecutor", "ThreadingMixIn", "ThreadingHTTPServer", "ThreadingTCPServer"}
BEGINNERS = {
    "runtime/system/own_threads.py": {"Thread", "start_new_thread"},
    "store/server_trial.py": {"ThreadPoolExecutor"},  # whoever started it takes its result, or what it raised
}
"""The only files that begin threads, and by what."""
GIVEN = {"encode", "decode", "get_credentials", "hook", "upgrade", "visitor", "_visitor", "delay", "_upgrade"}
"""Names under which our code has what users give to be called."""
OWNERS = {"codec", "provider", "policy", "self"}
"""Names of objects of users, before a name of theirs; and of ours that keep one."""


def trees() -> Iterator[tuple[str, ast.AST]]:
    for file in sorted(HOME.rglob("*.py")):
        yield str(file.relative_to(HOME)), ast.parse(file.read_text())


def threads_begun(tree: ast.AST) -> set[str]:
    """What of `STARTS` is called, or is a base."""
    used = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    used += [base for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for base in node.bases]
    return STARTS & {each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in used}


def calls_of_users_code(tree: ast.AST) -> Iterator[str]:
    """Calls of what users give, by the names that it has in our code."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in GIVEN - {"encode", "decode", "delay"}:
            yield f"{called.id}(…) in line {node.lineno}"
        if isinstance(called, ast.Attribute) and called.attr in GIVEN:
            owner = called.value.attr if isinstance(called.value, ast.Attribute) else getattr(called.value, "id", "")
            if owner.lstrip("_") in OWNERS and not (owner == "self" and called.attr in ("encode", "decode", "delay")):
                yield f"{owner}.{called.attr}(…) in line {node.lineno}"


@pytest.mark.crossing
def test_one_module_begins_our_threads() -> None:
    begun = {path: found for path, tree in trees() if (found := threads_begun(tree))}
    assert begun == BEGINNERS


@pytest.mark.crossing
def test_one_function_calls_code_of_users() -> None:
    assert {path: found for path, tree in trees() if (found := [*calls_of_users_code(tree)])} == {}


@pytest.mark.parametrize(
    "code",
    ["codec.encode(x)", "self._codec.decode(x)", "provider.get_credentials()", "hook(draft)", "self._visitor(request)"],
)
def test_a_call_of_users_code_is_found(code: str) -> None:
    assert [*calls_of_users_code(ast.parse(code))]


@pytest.mark.parametrize("code", ["threading.Thread(target=f)", "Timer(1, f)", "_thread.start_new_thread(f, ())"])
def test_a_thread_that_is_begun_is_found(code: str) -> None:
    assert threads_begun(ast.parse(code))
