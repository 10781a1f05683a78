"""The explain report as one self-contained HTML page: the dispatch graph drawn as SVG, and timing bars."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.explain.graph_drawing import draw
from tilewright.compiler.explain.report import DispatchReport, Report, duration, quantity, short_location

_BOX = (168.0, 40.0)
_GAP = (18.0, 26.0)
_MARGIN = 12.0


@dataclass(frozen=True)
class Box:
    """One drawn node: a dispatch, or an input of the model (`number` is None)."""

    x: float
    y: float
    width: float
    height: float
    title: str
    detail: str
    number: int | None
    heat: float
    tip: str


@dataclass(frozen=True)
class Picture:
    """The drawn graph: boxes, and edges as SVG path data."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    edges: tuple[str, ...]


def picture(report: Report) -> Picture:
    """Draws the dispatches and the inputs they read in layers; heat is a dispatch's share of the slowest."""
    names = dict.fromkeys(i for d in report.dispatches for i in d.inputs if isinstance(i, str))
    nodes = [*names, *(d.number for d in report.dispatches)]
    before = {d.number: list(d.inputs) for d in report.dispatches}
    drawing = draw(nodes, before, _BOX, _GAP)
    most = max((d.measured_us for d in report.dispatches), default=0.0) or 1.0
    boxes = []
    for node in nodes:
        x, y = drawing.centres[node]
        left, top = x - _BOX[0] / 2 + _MARGIN, y - _BOX[1] / 2 + _MARGIN
        if isinstance(node, str):
            boxes.append(Box(left, top, *_BOX, _clip(node, 22), "input", None, 0.0, node))
        else:
            d = report.dispatches[node]
            detail = f"{duration(d.measured_us)}  {d.share:.1%}"
            title = _clip(f"#{d.number} {d.operator}", 22)
            boxes.append(Box(left, top, *_BOX, title, detail, d.number, d.measured_us / most, _tip(d)))
    edges = tuple(
        _curve([(x + _MARGIN, y + _MARGIN) for x, y in points]) for points in drawing.edges.values()
    )
    return Picture(drawing.width + 2 * _MARGIN, drawing.height + 2 * _MARGIN, tuple(boxes), edges)


def _clip(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _tip(d: DispatchReport) -> str:
    bound = f"bound {duration(d.bound.us)} ({d.bound.by})"
    lines = [f"#{d.number} {d.operator}", d.location, d.schedule, bound]
    return "\n".join(line for line in lines if line)


def _curve(points: list[tuple[float, float]]) -> str:
    """SVG path through `points`, from the first box's bottom to the last one's top, upright at bends."""
    half = _BOX[1] / 2
    points = [(points[0][0], points[0][1] + half), *points[1:-1], (points[-1][0], points[-1][1] - half)]
    parts = [f"M{points[0][0]:.1f},{points[0][1]:.1f}"]
    for (x0, y0), (x1, y1) in pairwise(points):
        middle = (y0 + y1) / 2
        parts.append(f"C{x0:.1f},{middle:.1f} {x1:.1f},{middle:.1f} {x1:.1f},{y1:.1f}")
    return " ".join(parts)


def page_environment() -> Any:
    """What templates of pages are read by; raises TilewrightError without jinja2."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ModuleNotFoundError:
        raise TilewrightError(
            "a page needs `jinja2`; install it with: pip install 'tilewright[cli]'"
        ) from None
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(duration=duration, quantity=quantity, place=short_location)
    return environment


def page(report: Report) -> str:
    """The whole page as text, which loads nothing from anywhere. Raises TilewrightError without jinja2."""
    environment = page_environment()
    kinds: dict[str, list[DispatchReport]] = {}
    for d in report.dispatches:
        kinds.setdefault(d.operator, []).append(d)
    by_operator = sorted(
        ((name, len(group), sum(d.measured_us for d in group)) for name, group in kinds.items()),
        key=lambda row: (-row[2], row[0]),
    )
    return environment.get_template("explain.html.jinja").render(
        report=report,
        picture=picture(report),
        slowest=max((d.measured_us for d in report.dispatches), default=0.0) or 1.0,
        by_operator=by_operator,
        compile_s=sum(report.phases_s.values()),
        longest_phase=max(report.phases_s.values(), default=0.0) or 1.0,
    )
