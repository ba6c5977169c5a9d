"""Pictures as SVG text, from numbers alone: a line with threshold and onset, a sparkline, stacked parts, a strip.

No style of its own: classes, which the page's sheet colours in light and dark. Each says in words what it shows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from watchdog.model import Verdict
from watchdog.report.course import Line
from watchdog.report.day import day_text, runs
from watchdog.report.episodes import Story
from watchdog.text import seconds_text

WIDTH, HEIGHT = 240.0, 56.0
_SPARK_WIDTH, _SPARK_HEIGHT = 120.0, 24.0
_SPARK_POINTS = 40
_HEADROOM = 1.08
_STORY_WIDTH, _STORY_HEIGHT = 1000.0, 32.0

Point = tuple[float, float | None]


@dataclass(frozen=True, slots=True)
class Scale:
    """Where a moment and a value lie in a picture of `width` by `height`."""

    begin: float
    end: float
    top: float
    width: float = WIDTH
    height: float = HEIGHT

    def x(self, time: float) -> float:
        """From the left; what lies outside is put on the edge."""
        share = (time - self.begin) / (self.end - self.begin) if self.end > self.begin else 1.0
        return round(max(0.0, min(1.0, share)) * self.width, 1)

    def y(self, value: float) -> float:
        """From above."""
        return round(self.height - 1 - value / self.top * (self.height - 3), 1)


def line_chart(
    line: Line, shown: Callable[[float], str], threshold: float | None = None, onset: float | None = None
) -> Markup:
    """A reading over time, its threshold dashed and the time since the onset (unix seconds) tinted."""
    known = line.known
    top = max(*known, threshold or 0.0, 0.0) * _HEADROOM or 1.0
    scale = Scale(line.times[0], line.times[-1], top)
    inside = onset is not None and onset > scale.begin
    parts = [_onset(scale, onset) if onset is not None else "", *_areas(line, scale), *_strokes(line, scale)]
    if threshold is not None and threshold > 0:
        y = scale.y(threshold)
        parts.append(f'<line class="threshold" x1="0" x2="{WIDTH:g}" y1="{y:g}" y2="{y:g}"/>')
    before = line.at(onset) if onset is not None and inside else None
    return _svg("chart", scale, describe(line, shown, threshold, before), parts)


def describe(
    line: Line, shown: Callable[[float], str], threshold: float | None = None, before: float | None = None
) -> str:
    """What a picture of a line says, in words."""
    known = line.known
    words = [f"now {shown(known[-1])}", f"highest {shown(max(known))}", f"lowest {shown(min(known))}"]
    words.append(f"over {seconds_text(float(round(line.times[-1] - line.times[0])))}")
    words += [f"at the onset {shown(before)}"] if before is not None else []
    words += [f"threshold {shown(threshold)}"] if threshold is not None and threshold > 0 else []
    return ", ".join(words)


def sparkline(line: Line) -> Markup:
    """A reading over time as small as a word; what it shows stands beside it as a number."""
    step = max(1, len(line.values) // _SPARK_POINTS)
    # From the end, so that the newest is always among them.
    thin = Line(line.name, line.times[::-1][::step][::-1], line.values[::-1][::step][::-1])
    known = thin.known
    top = (max(known) if known else 0.0) * _HEADROOM or 1.0
    scale = Scale(thin.times[0], thin.times[-1], top, _SPARK_WIDTH, _SPARK_HEIGHT)
    return _svg("spark", scale, "", list(_strokes(thin, scale)))


def stacked(lines: Mapping[str, Line], shown: Callable[[float], str], onset: float | None = None) -> Markup:
    """Parts of a whole over time, one upon the other; each part's name is its class."""
    first = next(iter(lines.values()))
    sums = [
        sum(values) if None not in values else None
        for values in zip(*(line.values for line in lines.values()), strict=True)
    ]
    whole = Line("whole", first.times, sums)
    if not whole.known:
        return Markup()
    scale = Scale(first.times[0], first.times[-1], max(whole.known) * _HEADROOM or 1.0)
    floor: list[float | None] = [0.0 if each is not None else None for each in sums]
    parts = [_onset(scale, onset)] if onset is not None else []
    for name, line in lines.items():
        roof = [
            low + value if low is not None and value is not None else None
            for low, value in zip(floor, line.values, strict=True)
        ]
        parts += [
            f'<polygon class="{escape(name)}" points="{points}"/>'
            for points in _bands(first.times, floor, roof, scale)
        ]
        floor = roof
    return _svg("chart", scale, f"an average request: {describe(whole, shown)}", parts)


def strip(verdicts: Sequence[Verdict | None]) -> Markup:
    """The last 24 hours, coloured by verdict; what is not known is the ground."""
    scale = Scale(0.0, float(len(verdicts)), 1.0, float(len(verdicts)), 1.0)
    # One shape for each verdict: a day of changes on each of many servers is a page that a phone must load.
    shapes: dict[Verdict, str] = {}
    x = 0
    for verdict, length in runs(verdicts):
        if verdict is not None:
            shapes[verdict] = f"{shapes.get(verdict, '')}M{x} 0h{length}v1h-{length}"
        x += length
    parts = [f'<path class="{verdict}" d="{shape}"/>' for verdict, shape in shapes.items()]
    return _svg("strip", scale, day_text(verdicts), parts)


def story_strip(story: Story, severity: str) -> Markup:
    """The times that a cause held: paler while it was pending; restarts and changes of the server as lines."""
    scale = Scale(story.begin, story.end, 1.0, _STORY_WIDTH, _STORY_HEIGHT)
    parts = []
    for one in story.episodes:
        ended = one.ended if one.ended is not None else story.end
        parts.append(_stretch(scale, "pending", one.pending, one.firing if one.firing is not None else ended))
        if one.firing is not None:
            parts.append(_stretch(scale, severity, one.firing, ended))
    for mark in story.marks:
        x = scale.x(mark.wall)
        parts.append(
            f'<line class="change" x1="{x:g}" x2="{x:g}" y1="0" y2="{_STORY_HEIGHT:g}">'
            f"<title>{escape(mark.text)}</title></line>"
        )
    return _svg("story", scale, story.text, parts)


def _stretch(scale: Scale, kind: str, begin: float, end: float) -> str:
    x = scale.x(begin)
    # However short it was, it is to be seen.
    width = max(1.5, round(scale.x(end) - x, 1))
    return f'<rect class="{kind}" x="{x:g}" y="8" width="{width:g}" height="{_STORY_HEIGHT - 16:g}"/>'


def _svg(kind: str, scale: Scale, text: str, parts: Sequence[str]) -> Markup:
    told = f'role="img" aria-label="{escape(text)}"' if text else 'aria-hidden="true"'
    body = "".join(parts)
    return Markup(  # noqa: S704 - numbers and escaped words
        f'<svg class="{kind}" viewBox="0 0 {scale.width:g} {scale.height:g}" preserveAspectRatio="none" {told}>'
        f"{body}</svg>"
    )


def _onset(scale: Scale, onset: float) -> str:
    x = scale.x(onset)
    rest = round(scale.width - x, 1)
    line = f'<line class="onset" x1="{x:g}" x2="{x:g}" y1="0" y2="{scale.height:g}"/>' if x > 0 else ""
    return f'<rect class="since" x="{x:g}" y="0" width="{rest:g}" height="{scale.height:g}"/>{line}'


def _runs(
    times: Sequence[float], values: Sequence[float | None], scale: Scale
) -> Iterator[list[tuple[float, float]]]:
    """The known stretches as points; an unknown value parts them."""
    run: list[tuple[float, float]] = []
    for time, value in zip(times, values, strict=True):
        if value is not None:
            run.append((scale.x(time), scale.y(value)))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _points(run: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in run)


def _strokes(line: Line, scale: Scale) -> Iterator[str]:
    for run in _runs(line.times, line.values, scale):
        # One point alone is no line: it is drawn as a dot, which a round cap makes of it.
        points = _points(run if len(run) > 1 else [*run, *run])
        yield f'<polyline class="line" points="{points}"/>'


def _areas(line: Line, scale: Scale) -> Iterator[str]:
    bottom = scale.height - 1
    for run in _runs(line.times, line.values, scale):
        yield f'<polygon class="area" points="{run[0][0]:g},{bottom:g} {_points(run)} {run[-1][0]:g},{bottom:g}"/>'


def _bands(
    times: Sequence[float], floor: Sequence[float | None], roof: Sequence[float | None], scale: Scale
) -> Iterator[str]:
    known = [low if high is not None else None for low, high in zip(floor, roof, strict=True)]
    for low, high in zip(_runs(times, known, scale), _runs(times, roof, scale), strict=True):
        yield _points([*high, *reversed(low)])
