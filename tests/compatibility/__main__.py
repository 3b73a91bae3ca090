"""``python -m tests.compatibility`` keeps what this version promises, for the next one to be compared with."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from pollconsumer.interface.settings.names import VERSION
from tests.compatibility.promised_lines import promised_lines
from tests.site import Site

PROMISED = Path(__file__).parent / "promised.txt"


def printed_metrics(site: Site) -> str:
    """After a launch that has handled a message."""
    site.enqueue("record", name="a")
    site.drain()
    return site.command("metrics").stdout


if __name__ == "__main__":
    with closing(Site()) as site:
        lines = promised_lines(printed_metrics(site))
    PROMISED.write_text("\n".join([f"# {VERSION}", *lines, ""]), "utf-8")
