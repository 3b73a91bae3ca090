"""Counts what the house is like to read: ``python -m tests.house`` prints it, `test_house.py` holds what must not slip.

Lines are those of files; a function's lines are those from its ``def`` to its end, without nested functions' own count
being taken out.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pollconsumer"
OPTIONAL_PACKAGES = ("dashboard/", "django/", "moving/", "otel/", "platform_files/", "sentry/", "watching/", "web/")
"""Beside the layers, which are the core packages: no module there imports them."""
NOT_PRIVATE = {"pollconsumer", "__future__", "_typeshed", "_thread"}
"""Documented under these names."""
NAMED_BY_USERS = {"audit.py", "testing.py", "django/apps.py", "django/dashboard_urls.py", "django/launch_urls.py"}
"""Modules that users, or Django, find by their names, and that nothing of ours imports."""
FEWEST_LINES, MOST_LINES = 60, 600
"""Of a module, which holds one subject whole."""
BRANCHES = (ast.If, ast.For, ast.While, ast.ExceptHandler, ast.With, ast.IfExp, ast.comprehension, ast.Assert)


class Function(NamedTuple):
    place: str
    lines: int
    complexity: int


@cache
def trees() -> dict[str, ast.Module]:
    """The product's modules by their path below the package."""
    return {
        str(path.relative_to(PACKAGE)): ast.parse(path.read_text("utf-8")) for path in sorted(PACKAGE.rglob("*.py"))
    }


def lines(paths: Iterable[str] | None = None, pattern: str = "*.py") -> int:
    files = PACKAGE.rglob(pattern) if paths is None else (PACKAGE / path for path in paths)
    return sum(len(path.read_text("utf-8").splitlines()) for path in files)


def modules() -> dict[str, int]:
    """The lines of each module, but for the `__init__.py` of packages, which mostly say what a package is."""
    return {path: lines([path]) for path in trees() if not path.endswith("__init__.py")}


def short_modules() -> list[str]:
    return [path for path, length in modules().items() if length < FEWEST_LINES]


def short_modules_of_few_importers() -> list[str]:
    """Short modules that fewer than three others import, but for those that users find by their names."""
    found = importers()
    return [path for path in short_modules() if len(found[path]) < 3 and path not in NAMED_BY_USERS]


def importers() -> dict[str, list[str]]:
    """The modules that import each, wherever in them the import stands."""
    found: dict[str, list[str]] = defaultdict(list)
    for path, tree in trees().items():
        for target in {target for node in ast.walk(tree) for target in _targets(node) if target != path}:
            found[target].append(path)
    return found


def long_modules() -> list[str]:
    return [path for path, length in modules().items() if length > MOST_LINES]


def packages() -> dict[str, list[str]]:
    """The modules at the top of each package, by its path."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        found[str(Path(path).parent)].append(path)
    return found


def small_packages() -> list[str]:
    """Packages with fewer than three modules and no package below them."""
    return [name for name, within in packages().items() if len(within) < 3 and name != "."]


def imports_in_functions() -> list[str]:
    """The places of import statements that stand in a function."""
    return [
        f"{path}:{node.lineno}"
        for path, tree in trees().items()
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in _within(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]


def _within(function: ast.AST) -> Iterator[ast.AST]:
    """What stands in a function, but for what stands in a function within it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
            yield from _within(node)


def wide_constructors() -> list[str]:
    """Classes whose ``__init__`` takes more than eight parameters besides ``self``."""
    return [
        f"{name} in {path}"
        for name, path, node in _classes()
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name == "__init__"
        if len(method.args.posonlyargs) + len(method.args.args) + len(method.args.kwonlyargs) > 9
    ]


def functions() -> list[Function]:
    return [
        Function(f"{path}:{node.name}", (node.end_lineno or node.lineno) - node.lineno + 1, _complexity(node))
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def _complexity(function: ast.AST) -> int:
    """McCabe's: one, and one for each branch and each further operand of ``and`` and ``or``."""
    return 1 + sum(
        isinstance(node, BRANCHES) + (len(node.values) - 1 if isinstance(node, ast.BoolOp) else 0)
        for node in ast.walk(function)
    )


def _classes() -> list[tuple[str, str, ast.ClassDef]]:
    """The name, the path and the definition of each."""
    return [
        (node.name, path, node)
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]


def public_names_of_several_files() -> dict[str, list[str]]:
    """Classes and functions at the top of modules, without an underscore."""
    found: dict[str, list[str]] = defaultdict(list)
    for path, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
                found[node.name].append(path)
    return {name: places for name, places in sorted(found.items()) if len({*places}) > 1}


def words_of(name: str) -> list[str]:
    """Of a class, in small letters."""
    spaced = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name.lstrip("_"))
    return spaced.split()


def imports(*, for_types: bool = False) -> dict[str, set[str]]:
    """The product's files that each imports when it is itself imported; with ``for_types``, those for types alone."""
    found: dict[str, set[str]] = {}
    for path, tree in trees().items():
        within = _for_types(tree) if for_types else _at_import(tree.body)
        found[path] = {target for node in within for target in _targets(node) if target != path}
    return found


def _is_for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _for_types(tree: ast.Module) -> Iterator[ast.stmt]:
    for node in tree.body:
        if _is_for_types(node) and isinstance(node, ast.If):
            yield from node.body


def _at_import(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.If | ast.Try) and not _is_for_types(node):
            yield from _at_import(node.body)
        else:
            yield node


def _targets(node: ast.AST) -> Iterator[str]:
    """Files of the product that an import statement names."""
    if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("pollconsumer"):
        return
    parts = (node.module or "").split(".")[1:]
    for alias in node.names:
        for place in (
            "/".join([*parts, alias.name]) + ".py",
            "/".join(parts) + ".py",
            "/".join([*parts, "__init__.py"]),
        ):
            if place.lstrip("/") in trees():
                yield place.lstrip("/")
                break


def circles() -> list[list[str]]:
    """Files that import one another, for types or not, by Tarjan's algorithm."""
    at_import, for_types = imports(), imports(for_types=True)
    graph = {path: at_import[path] | for_types[path] for path in at_import}
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(path: str) -> None:
        index[path] = low[path] = len(index)
        stack.append(path)
        for other in graph[path]:
            if other not in index:
                visit(other)
                low[path] = min(low[path], low[other])
            elif other in stack:
                low[path] = min(low[path], index[other])
        if low[path] == index[path]:
            at = stack.index(path)
            circle, stack[at:] = stack[at:], []
            if len(circle) > 1:
                found.append(sorted(circle))

    for path in graph:
        if path not in index:
            visit(path)
    return found


def private_imports() -> list[str]:
    """Modules and names of other packages that begin with an underscore."""
    found = []
    for path, tree in trees().items():
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            for name in names:
                parts = [part for part in (*module.split("."), *name.split(".")) if part]
                if parts[0] not in NOT_PRIVATE and any(part.startswith("_") for part in parts):
                    found.append(f"{'.'.join(parts)} in {path}")
    return found


def imports_of_optional_packages() -> list[str]:
    """A module of a core package that imports one of an optional package, wherever in it that stands."""
    return [
        f"{path} imports {target}"
        for path, tree in trees().items()
        if not path.startswith(OPTIONAL_PACKAGES)
        for node in ast.walk(tree)
        for target in _targets(node)
        if target.startswith(OPTIONAL_PACKAGES)
    ]


HANDLERS = """
import json
import sys

from pollconsumer import PollConsumer
from pollconsumer.runtime.consumer import Consumer

app = PollConsumer()
entered = set()


@app.handler
def hello(name):
    pass


def note(frame, event, _):
    if event == "call" and frame.f_code.co_filename.startswith({package!r}):
        entered.add((frame.f_code.co_filename, frame.f_code.co_qualname))


def noting(function):
    def noted(*arguments):
        try:
            return function(*arguments)
        finally:
            sys.setprofile(None)
            print(json.dumps(sorted(entered)), flush=True)

    return noted


def handle_first(consumer):
    Consumer.handle = handle
    handle(consumer)
    hello.enqueue("Ann")
    sys.setprofile(note)


handle, Consumer.handle = Consumer.handle, handle_first
Consumer.handle_until_stopped = noting(Consumer.handle_until_stopped)

if __name__ == "__main__":
    hello.enqueue("Ann")  # the first of its queue, which goes another way
    hello.enqueue("Ann")  # the first that goes this way, for which the server loads a script
    sys.setprofile(note)
    noting(hello.enqueue)("Ann")
"""

LAUNCHES = 3


@cache
def entered_by_a_message() -> dict[str, list[tuple[str, str]]]:
    """The files and functions of the product that a warm ``enqueue`` enters, and a launch's loop from the end of its
    first message, which makes what is made once: while it reserves, handles and settles a second one, and finds no
    more. Of several launches, the one that enters the fewest functions counts: a slow machine lets a launch also do
    what it does each second."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "handlers.py").write_text(HANDLERS.format(package=f"{PACKAGE}/"), "utf-8")
        (directory / "config.toml").write_text('handlers = ["handlers"]\ndata = "data"\n', "utf-8")
        program = [sys.executable, "-m", "pollconsumer"]
        try:
            enqueued = _entered(directory, sys.executable, "handlers.py")
            _printed(directory, *program, "run", "--until-empty")
            launches = []
            for _ in range(LAUNCHES):
                _printed(directory, *program, "enqueue", "hello", '{"name": "Ann"}')
                launches.append(_entered(directory, *program, "run", "--until-empty"))
        finally:
            _printed(directory, *program, "store", "stop")
    return {"enqueue": enqueued, "handle": min(launches, key=len)}


def files_entered(by: str) -> list[str]:
    return sorted({file for file, _ in entered_by_a_message()[by]})


def classes_of_a_message() -> set[str]:
    """Those of which it enters a method."""
    return {
        function.rpartition("<locals>.")[2].partition(".")[0]
        for entered in entered_by_a_message().values()
        for _, function in entered
        if "." in function.rpartition("<locals>.")[2]
    }


def _entered(directory: Path, *words: str) -> list[tuple[str, str]]:
    *_, last_line = _printed(directory, *words).splitlines()
    return [(file, function) for file, function in json.loads(last_line)]


def _printed(directory: Path, *words: str) -> str:
    done = subprocess.run(words, cwd=directory, capture_output=True, text=True, check=True)
    return done.stdout


COUNTED: dict[str, Callable[[], Collection[object]]] = {
    "modules under 60 lines": short_modules,
    "modules under 60 lines that fewer than three import": short_modules_of_few_importers,
    "packages with fewer than three modules": small_packages,
    "modules at the top of runtime/": lambda: packages()["runtime"],
    "modules at the top of interface/": lambda: packages()["interface"],
    "imports in functions": imports_in_functions,
    "public names of several files": public_names_of_several_files,
    "constructors with more than eight parameters": wide_constructors,
    "functions over 60 lines": lambda: [each for each in functions() if each.lines > 60],
    "functions over a complexity of 15": lambda: [each for each in functions() if each.complexity > 15],
    "files that one enqueue enters": lambda: files_entered("enqueue"),
    "functions that one enqueue enters": lambda: entered_by_a_message()["enqueue"],
    "files that one handling enters": lambda: files_entered("handle"),
    "functions that one handling enters": lambda: entered_by_a_message()["handle"],
}
"""What may not become more: by the name of a count, the things that are counted."""


def report() -> Iterator[tuple[str, Any]]:
    """What is counted, with its value."""
    yield "modules", len(modules())
    yield "lines of Python", lines()
    yield "lines of Lua", lines(pattern="*.lua")
    yield (
        "lines of Python without optional packages",
        lines() - lines([path for path in trees() if path.startswith(OPTIONAL_PACKAGES)]),
    )
    yield "modules over 600 lines", len(long_modules())
    for what, found in COUNTED.items():
        yield what, len(found())
    yield "circles of files", len(circles())
    yield "private imports of other packages", len(private_imports())
    yield "modules of core packages that import an optional one", len(imports_of_optional_packages())


if __name__ == "__main__":
    for what, value in report():
        print(f"{value!s:>8}  {what}")
