"""Pictures as inline SVG. They are stretched to the page's width, so they have shapes only: text stands beside them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from markupsafe import Markup

from pollconsumer.core.notation.text import printable


class Box(NamedTuple):
    """A rectangle in the units of what is drawn, ``bottom`` upwards. ``kind``: a class of the stylesheet."""

    kind: str
    left: float
    bottom: float
    width: float
    height: float


def group(boxes: Iterable[Box], title: str) -> Markup:
    """Boxes that belong together, with the ``title`` that a browser shows over them."""
    inner = Markup("").join(_rectangle(box) for box in boxes if box.width > 0 and box.height > 0)
    return Markup("<g><title>{}</title>{}</g>").format(printable(title), inner)


def line(kind: str, bottom: float, width: float) -> Markup:
    """A line from the picture's left edge to its right one."""
    return Markup('<line class="{}" x1="0" x2="{}" y1="{}" y2="{}"/>').format(
        kind, _number(width), *[_number(-bottom)] * 2
    )


def picture(kind: str, width: float, height: float, parts: Iterable[Markup], label: str) -> Markup:
    """An image of ``width`` times ``height`` units, which the stylesheet sizes by ``kind``; ``label`` for who cannot
    see it."""
    return Markup(
        '<svg class="{}" viewBox="0 {} {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(kind, _number(-height), _number(width), _number(height), printable(label), Markup("").join(parts))


def _rectangle(box: Box) -> Markup:
    corner = (box.left, -box.bottom - box.height, box.width, box.height)
    return Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>').format(box.kind, *map(_number, corner))


def _number(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")
