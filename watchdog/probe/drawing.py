"""Bars of a few figures, for a terminal and as an SVG."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

_TERMINAL_WIDTH = 40
_SVG_WIDTH, _ROW_HEIGHT, _LABEL_WIDTH = 640, 24, 200


class Bar(NamedTuple):
    """A figure with its name and its text."""

    name: str
    value: float
    text: str


def bars_text(title: str, bars: Sequence[Bar]) -> str:
    """The bars a line each, the longest as wide as there is room."""
    greatest = max((bar.value for bar in bars), default=0.0)
    width = max((len(bar.name) for bar in bars), default=0)
    lines = [title]
    for bar in bars:
        filled = round(bar.value / greatest * _TERMINAL_WIDTH) if greatest > 0 else 0
        lines.append(f"  {bar.name:{width}}  {'█' * filled}{'·' if filled == 0 else ''} {bar.text}")
    return "\n".join(lines)


def bars_svg(title: str, bars: Sequence[Bar]) -> str:
    """The bars as a picture of its own, without scripts, styles or anything to load."""
    greatest = max((bar.value for bar in bars), default=0.0)
    height = (len(bars) + 2) * _ROW_HEIGHT
    look = 'font-family="sans-serif" font-size="13" role="img"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_SVG_WIDTH}" height="{height}" {look}>',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_SVG_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="8" y="18" font-weight="bold">{escape(title)}</text>',
    ]
    room = _SVG_WIDTH - _LABEL_WIDTH - 130
    for row, bar in enumerate(bars, start=1):
        y = row * _ROW_HEIGHT + 8
        wide = max(1.0, bar.value / greatest * room) if greatest > 0 else 1.0
        parts += [
            f'<text x="8" y="{y + 14}">{escape(bar.name)}</text>',
            f'<rect x="{_LABEL_WIDTH}" y="{y}" width="{wide:.1f}" height="18" fill="#3b6ea5"/>',
            f'<text x="{_LABEL_WIDTH + wide + 6:.1f}" y="{y + 14}">{escape(bar.text)}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])
