"""docs/ is a site: every page is reached, every link leads somewhere, every table is one."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import pytest

ROOT = Path(__file__).parents[1]
SITE = runpy.run_path(str(ROOT / ".ci" / "docs_site.py"))
COPIED = (".ci", "docs")
LINK = r"\]\(((?!https:)[^)#]+)(?:#[^)]*)?\)"


def pages_for_models(llms: Path) -> list[str]:
    """What an llms.txt links to, as https://llmstxt.org says."""
    return re.findall(r"^- \[.+\]\((.+?)\): \S", llms.read_text("utf-8"), re.MULTILINE)


def links(page: str) -> list[str]:
    return re.findall(LINK, (ROOT / page).read_text("utf-8"))


def home_page() -> str:
    return (ROOT / "docs" / "index.md").read_text("utf-8")


def pages_of_the_navigation() -> list[str]:
    nav = (ROOT / ".ci" / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    return re.findall(r"(\S+\.md)$", nav, re.MULTILINE)


def built(root: Path, site: Path) -> tuple[int, str]:
    """Exit code of the build of ``root``'s docs, in a theme that comes with mkdocs, and what it said; without --quiet,
    which would count no warning."""
    configuration = str(SITE["prepared"](root, site.parent / "read"))
    place = ["--config-file", configuration, "--site-dir", str(site)]
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--theme", "mkdocs", *place]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"NO_MKDOCS_2_WARNING": "1"})
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module", autouse=True)
def mkdocs() -> None:
    pytest.importorskip("mkdocs")


def test_the_site_is_built_without_warnings_and_its_tables_are_tables(tmp_path: Path) -> None:
    site = tmp_path / "site"
    code, said = built(ROOT, site)
    assert (code, "WARNING" in said) == (0, False), said
    pages = {page.relative_to(site).as_posix(): page.read_text("utf-8") for page in site.rglob("*.html")}
    brought = [name for name in SITE["BROUGHT"].values() if name.endswith(".md")]
    assert len(pages) == len([*(ROOT / "docs").rglob("*.md"), *brought]) + 1
    assert [name for name, page in pages.items() if re.search(r"<p>\|", page)] == []
    read = tmp_path / "read" / "docs"  # copied beside the site's pages
    assert [page for page in pages_for_models(read / "llms.txt") if not (read / page).is_file()] == []


def test_the_site_links_to_the_files_that_it_has_and_names_the_others(tmp_path: Path) -> None:
    read = SITE["prepared"](ROOT, tmp_path / "read").parent / "docs"
    pages = {page.relative_to(read).as_posix(): page.read_text("utf-8") for page in read.rglob("*.md")}
    found = {(name, link) for name, page in pages.items() for link in re.findall(LINK, page)}
    assert {
        ("settings.md", "config.toml"),
        ("reference/compatibility.md", "../changelog.md"),
        ("changelog.md", "store.md"),
        ("contributing.md", "decisions/index.md"),
        ("watching.md", "alerts.yml"),
    } <= found
    assert [(name, link) for name, link in found if not (read / name).parent.joinpath(link).exists()] == []
    assert all((read / name).is_file() for name in SITE["BROUGHT"].values())


def test_llms_txt_lists_the_pages_of_the_site_in_their_order() -> None:
    assert pages_for_models(ROOT / "docs" / "llms.txt") == pages_of_the_navigation()


def test_each_page_is_once_in_the_navigation_and_listed_on_the_home_page() -> None:
    docs = ROOT / "docs"
    pages = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md") if path.parent.name != "decisions"}
    assert sorted(pages_of_the_navigation()) == sorted(pages)
    listed = {link for link in re.findall(LINK, home_page().partition("\n## All pages\n")[2]) if ".." not in link}
    assert listed == pages - {"index.md"} | {"decisions/index.md"}  # which leads to the other decisions


def test_each_of_the_three_ways_to_read_has_at_most_ten_pages() -> None:
    ways = re.findall(r"^\| ([^|]+) \| (\[.+) \|$", home_page(), re.MULTILINE)
    assert [reader for reader, _ in ways] == ["new", "woken at 3 a.m.", "a contributor"]
    assert {
        reader: len(set(re.findall(LINK, way))) for reader, way in ways if len(set(re.findall(LINK, way))) > 10
    } == {}


@pytest.mark.crossing
def test_a_page_that_nothing_lists_and_a_link_to_nothing_are_found(tmp_path: Path) -> None:
    for name in COPIED:
        copytree(ROOT / name, tmp_path / name)
    (tmp_path / "docs" / "new.md").write_text("[a](gone.md), [b](store.md#gone), [c](../gone.py)\n")
    code, said = built(tmp_path, tmp_path / "site")
    assert code == 1
    for missing in ("new.md", "'gone.md'", "'store.md#gone'", "'../gone.py'"):
        assert missing in said


def test_what_the_readme_links_to_is_there() -> None:
    assert "docs/index.md" in links("README.md")
    assert [link for page in ("README.md", "CHANGELOG.md") for link in links(page) if not (ROOT / link).exists()] == []


def test_the_sites_home_begins_as_the_readme() -> None:
    readme, home = ((ROOT / page).read_text("utf-8").partition("\n## ")[0] for page in ("README.md", "docs/index.md"))
    assert home.strip() == readme.strip().replace("](docs/", "](")


@pytest.mark.parametrize(("page", "words"), [("README.md", 950), ("CONTRIBUTING.md", 900)])
def test_the_first_pages_are_read_in_five_minutes(page: str, words: int) -> None:
    assert len((ROOT / page).read_text("utf-8").split()) <= words


def test_the_tests_and_scenarios_that_pages_of_evidence_name_are_there() -> None:
    text = "\n".join(page.read_text("utf-8") for page in (ROOT / "docs" / "evidence").glob("*.md"))
    defined = {
        name
        for path in (ROOT / "tests").rglob("*.py")
        for name in re.findall(r"^ *def (\w+)\(", path.read_text("utf-8"), re.MULTILINE)
    }
    named = {*re.findall(r"`(test_\w+)`", text), *re.findall(r"`((?:a|an|members)_\w+)`", text)}
    assert len(named) > 30
    assert named - defined == set()
