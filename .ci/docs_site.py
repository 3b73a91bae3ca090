"""``python .ci/docs_site.py``: builds the site of docs/ in build/site/html, with Zensical, and needs no network.

`prepared` makes what a generator reads, since the pages are written for the repository. The files of `BROUGHT` stand
beside docs/ there, and are part of the site. A link to any other file beside docs/ works in the repository alone; the
site shows the link's text. A link to a file that does not exist is left as it is, and the generator warns of it. Beside
each page of the site stands its Markdown, to which llms.txt links.
"""

from __future__ import annotations

import re
import subprocess
import sys
from os.path import relpath
from pathlib import Path
from shutil import copyfile, copytree, rmtree

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\[([^\[\]]+)\]\(([^()\s#:]+)(#[^()\s]*)?\)")
FOLDER = "decisions"
BROUGHT = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "config.toml": "config.toml",
    "crontab.example": "crontab.example",
    "deploy/grafana/pollconsumer.json": "grafana.json",
    "deploy/prometheus/alerts.yml": "alerts.yml",
}
"""Files of the repository that the site has, too: the path there → the path in the site."""


def prepared(root: Path, place: Path) -> Path:
    """The configuration in ``place``, beside the pages of ``root``. The decisions are in its navigation, their index
    first, then the pages of `BROUGHT`."""
    rmtree(place, ignore_errors=True)
    docs, root = place / "docs", root.resolve()
    copytree(root / "docs", docs)
    sites = {path: path.relative_to(root / "docs") for path in (root / "docs").rglob("*")}
    brought = {root / path: Path(name) for path, name in BROUGHT.items() if (root / path).is_file()}
    for path, name in brought.items():
        copyfile(path, docs / name)
    sites |= brought
    for path, name in sites.items():
        if name.suffix == ".md":
            text = LINK.sub(lambda link, at=path: _shown(link, at, sites), path.read_text("utf-8"))
            (docs / name).write_text(text, "utf-8")
    decisions = sorted((docs / FOLDER).glob("*.md"), key=lambda page: (page.stem != "index", page.name))
    parts = {
        "Decisions": [f"{FOLDER}/{page.name}" for page in decisions],
        "Project": [str(name) for name in brought.values() if name.suffix == ".md"],
    }
    nav = "".join(
        f"  - {title}:\n" + "".join(f"      - {page}\n" for page in pages) for title, pages in parts.items() if pages
    )
    configuration = place / "mkdocs.yml"
    configuration.write_text((root / ".ci" / "mkdocs.yml").read_text("utf-8") + nav, "utf-8")
    return configuration


def _shown(link: re.Match[str], at: Path, sites: dict[Path, Path]) -> str:
    """A ``link`` of the page ``at`` as the site shows it. ``sites``: file of the repository → its path in the site."""
    target = (at.parent / link[2]).resolve()
    if target in sites:
        return f"[{link[1]}]({relpath(sites[target], sites[at].parent)}{link[3] or ''})"
    return link[1] if target.exists() else link[0]


def main() -> int:
    configuration = prepared(ROOT, ROOT / "build" / "site")
    done = subprocess.run([sys.executable, "-m", "zensical", "build", "--strict", "-f", configuration], check=False)
    copytree(configuration.parent / "docs", configuration.parent / "html", dirs_exist_ok=True)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
