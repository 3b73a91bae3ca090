"""What is published: the package in the wheel, the repository in the sdist; and the metadata."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from ast import literal_eval
from email import message_from_bytes
from email.message import Message
from importlib.metadata import requires
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from packaging.requirements import Requirement

from pollconsumer.interface.cli.group import DOCUMENTATION, OF_PROGRAM
from pollconsumer.interface.settings.names import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parents[1]
BUILD = "import sys; from hatchling.build import build_{0}; build_{0}(sys.argv[1])"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
IN_THE_SDIST = (
    "docs",
    "examples",
    "tests",
    "deploy",
    ".ci",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "config.toml",
)


def built(kind: str, target: Path) -> Path:
    """A build of this directory, in which it leaves nothing."""
    command = [sys.executable, "-c", BUILD.format(kind), str(target)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [path] = target.iterdir()
    return path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        return message_from_bytes(archive.read(f"pollconsumer-{VERSION}.dist-info/METADATA"))


def files(names: Iterable[str]) -> set[str]:
    return {name for name in names if name.startswith("pollconsumer/") and "__pycache__" not in name}


def here(*folders: str) -> set[str]:
    """Files of these folders of the repository, and these files."""
    found = (
        path for name in folders for path in ((ROOT / name).rglob("*") if (ROOT / name).is_dir() else [ROOT / name])
    )
    return {path.relative_to(ROOT).as_posix() for path in found if path.is_file()}


def test_the_wheel_has_the_version_that_commands_print(wheel: Path) -> None:
    assert wheel.name.startswith(f"pollconsumer-{VERSION}-")


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert files(archive.namelist()) == files(here("pollconsumer"))


def test_the_wheel_leaves_out_docstrings_and_comments_alone_and_no_line_moves(wheel: Path) -> None:
    def lines(source: str) -> list[str]:
        tree = ast.parse(source)
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                node.body = [each for each in node.body if not is_text(each)]
        dumped = ast.dump(tree, include_attributes=True)  # a class may have ended with the docstring of an attribute
        return re.sub(r", end_lineno=\d+, end_col_offset=\d+", "", dumped).split("), ")

    left_out = 0
    with zipfile.ZipFile(wheel) as archive:
        for name in files(archive.namelist()):
            ours, theirs = (ROOT / name).read_bytes().decode(), archive.read(name).decode()
            left_out += len(ours) - len(theirs)
            if name.endswith(".py"):
                assert lines(theirs) == lines(ours), name
            elif name.endswith(".lua"):
                assert [*map(bare, theirs.split("\n"))] == [*map(bare, ours.split("\n"))], name
            else:
                assert theirs == ours, name
    assert left_out > 100_000


def is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def bare(line: str) -> str:
    """Without the name of a guard, and without a comment that has the line to itself and is read by nobody."""
    line = re.sub(r"\s*-- GUARD .*", "", line)
    return "" if re.match(r"\s*--(?! (KEYS|NEEDS|PART|EXPECT) )", line) else line


def test_what_the_wheel_shows_is_what_this_tree_shows(wheel: Path, tmp_path: Path) -> None:
    """Docstrings of public names, help of commands, what is said of settings; scripts can be linked."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    for name in ("tests", "docs", "config.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    program = (
        "import pollconsumer; from pathlib import Path; from tests.interface import references\n"
        "from pollconsumer.store.scripts import _DIRECTORY, Scripts\n"
        "assert all(b'return' in Scripts()[each.stem].code for each in _DIRECTORY.glob('*.lua')), _DIRECTORY\n"
        "assert Path(pollconsumer.__file__).parents[1] == Path.cwd()\n"
        "print({path.name: text for path, text in references.references().items()})"
    )
    command = [sys.executable, "-c", program]
    theirs, ours = (
        subprocess.run(command, cwd=place, stdout=subprocess.PIPE, text=True, check=True).stdout
        for place in (tmp_path, ROOT)
    )
    assert literal_eval(theirs) == literal_eval(ours)


def test_the_sdist_holds_pages_examples_tests_and_the_changelog(tmp_path: Path) -> None:
    with tarfile.open(built("sdist", tmp_path)) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    ignored = re.compile(r"__pycache__|db\.sqlite3|/mails/|/\.\w+_cache/")  # as .gitignore says
    assert {path for path in here(*IN_THE_SDIST) - held if not ignored.search(path)} == set()


def test_the_links_of_the_readme_lead_somewhere_from_everywhere(metadata: Message) -> None:
    text = metadata.get_payload()
    assert isinstance(text, str)
    links = re.findall(r"\]\(([^)]+)\)", text)
    source = f"{PROJECT['urls']['Source']}/blob/v{VERSION}/"
    assert f"{source}docs/index.md" in links
    assert [link for link in links if not re.match("https://|#", link)] == []


def test_the_help_and_a_first_configuration_name_the_documentation() -> None:
    address = PROJECT["urls"]["Documentation"]
    assert f"Documentation: {address}" == DOCUMENTATION
    assert OF_PROGRAM.endswith(DOCUMENTATION)
    template = ROOT / "pollconsumer" / "platform_files" / "templates" / "project.config.toml"
    assert address in "".join(template.read_text("utf-8").splitlines(keepends=True)[:3])


def test_each_address_of_the_project_is_that_of_its_metadata() -> None:
    source = PROJECT["urls"]["Source"]
    assert all(address.startswith(source) for address in PROJECT["urls"].values())
    texts = [(ROOT / path).read_text("utf-8") for path in here(".github", "SECURITY.md", "pyproject.toml", "README.md")]
    addresses = {
        address for text in texts for address in re.findall(r"https://[\w.]+/[\w-]*/?pollconsumer[\w/-]*", text)
    }
    ours = {address for address in addresses if "pypi.org" not in address}
    assert ours
    assert {address for address in ours if not address.startswith(source)} == set()


def brought_by(requirement: str, found: set[str]) -> set[str]:
    """``found``, and the names of what this brings to an installation without extras."""
    given = Requirement(requirement)
    if given.marker is None or given.marker.evaluate({"extra": ""}):
        name = re.sub("[-_.]+", "-", given.name.lower())
        if name not in found:
            found.add(name)
            for below in requires(name) or ():
                brought_by(below, found)
    return found


def test_an_installation_brings_fourteen_packages_each_of_which_has_its_reason() -> None:
    found: set[str] = set()
    for requirement in PROJECT["dependencies"]:
        brought_by(requirement, found)
    assert len(found) <= 14
    [reasons] = re.findall(r"^dependencies = \[\n(.*?)^\]", (ROOT / "pyproject.toml").read_text("utf-8"), re.S | re.M)
    assert [name for name in sorted(found) if not re.search(rf"\b{re.escape(name)}\b", reasons)] == []


def test_the_bill_of_materials_names_what_the_wheel_needs(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        bill = json.loads(archive.read(f"pollconsumer-{VERSION}.dist-info/sboms/sbom.cdx.json"))
    assert bill["metadata"]["component"]["version"] == VERSION
    needed = [re.split("[<>=;]", requirement)[0] for requirement in PROJECT["dependencies"]]
    assert [each["name"] for each in bill["components"]] == needed
    [own] = bill["dependencies"]
    assert own == {"ref": bill["metadata"]["component"]["purl"], "dependsOn": [f"pkg:pypi/{name}" for name in needed]}
    assert own["ref"] == f"pkg:pypi/pollconsumer@{VERSION}"
