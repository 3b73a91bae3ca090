"""What the site of docs/ needs beyond its configuration.

Links from pages to files beside docs/ work where the repository is read; the site has no such files, and shows their
text. A link to a file that does not exist is left as it is, and mkdocs warns of it. Beside each page stands its
Markdown, to which llms.txt links.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

LINK = re.compile(r"\[([^\[\]]+)\]\(((?:\.\./)+[^()\s#]+)(?:#[^()\s]*)?\)")
FOLDER = "decisions"


def on_config(config: Any) -> None:
    """Add the decisions to the navigation, their index first."""
    pages = sorted((Path(config.docs_dir) / FOLDER).glob("*.md"), key=lambda page: (page.stem != "index", page.name))
    config.nav.append({"Decisions": [f"{FOLDER}/{page.name}" for page in pages]})


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    docs, here = Path(config.docs_dir).resolve(), Path(page.file.abs_src_path).parent

    def shown(link: re.Match[str]) -> str:
        target = (here / link[2]).resolve()
        return link[1] if target.exists() and not target.is_relative_to(docs) else link[0]

    return LINK.sub(shown, markdown)


def on_post_page(output: str, *, page: Any, config: Any, **_: Any) -> str:
    target = Path(config.site_dir) / page.file.src_uri
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page.markdown, "utf-8")
    return output
