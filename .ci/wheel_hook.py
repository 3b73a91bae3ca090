"""What a wheel leaves out, so that it has at most 750 kB.

The installed package runs and shows the same. Left out are docstrings that neither `help` of a public name nor `--help`
shows, the comments of Lua scripts, and the names of guards. Each leaves its empty lines, so that a traceback, and an
error of a script, name the lines of the repository. Docstrings of modules, and other comments of Python, stay. The
sdist, and an editable installation, have all.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

if TYPE_CHECKING:
    from collections.abc import Iterator

SHOWN = """
audit core/errors core/lifecycle core/messages/message_steps core/retry core/window dashboard/access django/task_backend
interface/api/app interface/api/batches interface/api/handle interface/api/recurrences interface/api/registry
interface/sandbox interface/settings/declared otel runtime/handling/bulk runtime/handling/context
runtime/handling/delivery runtime/handling/handler_batches runtime/new_messages sentry store/actions store/audit_log
store/reading/batch_reader store/reading/messages store/records/occurrences store/recurrence_actions store/recurrences
testing web/launch_endpoint
"""
"""Beginnings of the files of public names, whose docstrings stay; a test compares the references."""
LUA_COMMENT = re.compile(r"^[ \t]*--(?! (?:KEYS|NEEDS|PART|EXPECT) )[^\n]*", re.MULTILINE)
"""Alone on its line. The others are read by `store/scripts.py`."""
GUARD = re.compile(r"[ \t]*(?:--|#) GUARD [^\n]*")
"""The name of what a test removes."""


class WheelHook(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def finalize(self, version: str, build_data: Any, artifact_path: str) -> None:  # noqa: ARG002  hatch gives it
        if version == "standard":
            rewrite(Path(artifact_path))


def rewrite(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        entries = [(entry, archive.read(entry)) for entry in archive.infolist()]
    contents = {entry.filename: slim(entry.filename, data) for entry, data in entries}
    [record] = [name for name in contents if name.endswith(".dist-info/RECORD")]
    contents[record] = "".join(recorded(contents, record)).encode()
    with zipfile.ZipFile(wheel, "w") as archive:
        for entry, _ in entries:
            archive.writestr(entry, contents[entry.filename], compresslevel=9)


def recorded(contents: dict[str, bytes], record: str) -> Iterator[str]:
    for name, data in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        yield f"{name},,\n" if name == record else f"{name},sha256={digest},{len(data)}\n"


def slim(name: str, data: bytes) -> bytes:
    package, _, path = name.partition("/")
    if package == "pollconsumer" and path.endswith((".lua", ".py")):
        data = GUARD.sub("", data.decode()).encode()
    if package == "pollconsumer" and path.endswith(".lua"):
        return LUA_COMMENT.sub("", data.decode()).encode()
    if package == "pollconsumer" and path.endswith(".py") and not path.startswith((*SHOWN.split(),)):
        return without_docstrings(data.decode()).encode()
    return data


def without_docstrings(source: str) -> str:
    """With an empty line for each line of a docstring. A module keeps its docstring, and so does a command, or what has
    no other statement."""
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        for first, last in docstrings(node):
            lines[first - 1 : last] = ["\n"] * (last - first + 1)
    return "".join(lines)


def docstrings(node: ast.AST) -> Iterator[tuple[int, int]]:
    """The first and the last line of each that goes."""
    if isinstance(node, ast.Module):
        body = node.body[1:]
    elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not is_shown(node):
        body = node.body
    else:
        return
    for each in body:
        if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) and isinstance(each.value.value, str):
            yield each.lineno, each.end_lineno or each.lineno


def is_shown(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return len(node.body) == 1 or any(re.search("command|group", ast.unparse(each)) for each in node.decorator_list)
