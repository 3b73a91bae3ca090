"""What must not slip of how the house reads: names that say their role once, no circles, nothing private of others."""

from __future__ import annotations

import ast

import pytest

from tests import house

MOST_LINES = 600
"""Of a file: a module holds one subject whole."""
MOST_IMPORTS_FOR_TYPES = 70
"""Of files of the product: most are of modules that a launch or a producer loads only where it needs them."""
DEFENDED = {
    "__main__.py",  # signal handlers are set before signal's enums are imported
    "runtime/handling/interrupts/alarm.py",  # as __main__.py, for each message
}
"""Files whose docstrings or comments say why they import something private of Python's."""


def test_no_class_name_stands_twice() -> None:
    assert house.names_of_several_classes() == {}


def test_no_file_name_stands_twice() -> None:
    assert house.names_of_several_files() == {}


def test_classes_and_files_are_named_by_a_role_and_no_gerund() -> None:
    assert house.gerund_classes() + house.gerund_files() == []


def test_no_files_import_one_another_even_for_types() -> None:
    assert house.circles() == []


def test_imports_stand_under_type_checking_no_more_often_than_before() -> None:
    assert house.imports_for_types() <= MOST_IMPORTS_FOR_TYPES


def test_nothing_private_of_another_package_is_imported_but_where_it_is_defended() -> None:
    assert {found.rpartition(" in ")[2] for found in house.private_imports()} <= DEFENDED


def test_the_house_imports_no_wing_and_every_directory_is_one_or_the_other() -> None:
    assert house.imports_of_wings() == []
    tops = {f"{path.split('/')[0]}/" for path in house.trees() if "/" in path}
    assert tops == {*house.WINGS, "core/", "interface/", "runtime/", "store/"}


def test_no_file_is_longer_than_one_subject_needs() -> None:
    assert house.longest_file()[1] <= MOST_LINES


def test_functions_are_brief() -> None:
    functions = house.functions()
    assert sum(each.lines for each in functions) / len(functions) < 8


@pytest.mark.parametrize(
    ("source", "found"),
    [("class Keeper: ...", []), ("class Keeping: ...", ["Keeping in a.py"]), ("class _Ping: ...", [])],
)
def test_a_gerund_is_told_from_a_noun(monkeypatch: pytest.MonkeyPatch, source: str, found: list[str]) -> None:
    monkeypatch.setattr(house, "trees", lambda: {"a.py": ast.parse(source)})
    assert house.gerund_classes() == found


def test_a_circle_is_found_through_a_file_between(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = {
        "a.py": "from pollconsumer.b import x",
        "b.py": "from pollconsumer import c",
        "c.py": "if TYPE_CHECKING:\n    from pollconsumer.a import y",
        "d.py": "from pollconsumer.a import y",
    }
    monkeypatch.setattr(house, "trees", lambda: {path: ast.parse(source) for path, source in sources.items()})
    assert house.circles() == [["a.py", "b.py", "c.py"]]
