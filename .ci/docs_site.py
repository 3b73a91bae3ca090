"""``python .ci/docs_site.py``: builds the site of docs/ in build/site/html, with Zensical, and needs no network.

`prepared` makes what a generator reads, since the pages are written for the repository. A link to a file beside docs/
works there; the site has no such files, and shows the link's text. A link to a file that does not exist is left as it
is, and the generator warns of it. Beside each page of the site stands its Markdown, to which llms.txt links.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from shutil import copytree, rmtree

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\[([^\[\]]+)\]\(((?:\.\./)+[^()\s#]+)(?:#[^()\s]*)?\)")
FOLDER = "decisions"


def prepared(root: Path, place: Path) -> Path:
    """The configuration in ``place``, beside the pages of ``root``. The decisions are in its navigation, their index
    first."""
    rmtree(place, ignore_errors=True)
    docs = root / "docs"
    copytree(docs, place / "docs")
    for page in (place / "docs").rglob("*.md"):
        original = docs / page.relative_to(place / "docs")
        page.write_text(
            LINK.sub(lambda link, at=original.parent: _shown(link, at, docs), page.read_text("utf-8")), "utf-8"
        )
    decisions = sorted((docs / FOLDER).glob("*.md"), key=lambda page: (page.stem != "index", page.name))
    configuration = place / "mkdocs.yml"
    nav = "".join(f"      - {FOLDER}/{page.name}\n" for page in decisions)
    configuration.write_text(f"{(root / '.ci' / 'mkdocs.yml').read_text('utf-8')}  - Decisions:\n{nav}", "utf-8")
    return configuration


def _shown(link: re.Match[str], at: Path, docs: Path) -> str:
    target = (at / link[2]).resolve()
    return link[1] if target.exists() and not target.is_relative_to(docs.resolve()) else link[0]


def main() -> int:
    configuration = prepared(ROOT, ROOT / "build" / "site")
    done = subprocess.run([sys.executable, "-m", "zensical", "build", "--strict", "-f", configuration], check=False)
    copytree(configuration.parent / "docs", configuration.parent / "html", dirs_exist_ok=True)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
