"""The curve of `holdfast tune` as a picture: one SVG file, light and dark, without scripts and without a network.

Runs in: main process.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from holdfast.diagnosis.wording import one_line
from holdfast.words import plural, rate

if TYPE_CHECKING:
    from holdfast.tasks.tune.facts import Setting
    from holdfast.tasks.tune.session import Outcome

_WIDTH, _HEIGHT = 720, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 24, 64, 56
_STYLE = """
svg { background: #fff; color: #1b1f24; font: 13px system-ui, sans-serif }
text { fill: currentColor } .title { font-size: 17px; font-weight: 600 } .dim { opacity: .65 }
.grid { stroke: currentColor; opacity: .13 } .curve { fill: none; stroke: #0b6bcb; stroke-width: 2.5 }
.range { stroke: #0b6bcb; stroke-width: 1.5; opacity: .5 } .point { fill: #0b6bcb } .chosen { fill: #1a7f37 }
.step { stroke: #b0418b; stroke-width: 2; stroke-dasharray: 6 5 } .step-text { fill: #b0418b }
@media (prefers-color-scheme: dark) {
  svg { background: #14181d; color: #e4e8ec } .curve, .range { stroke: #6cb6ff } .point { fill: #6cb6ff }
  .chosen { fill: #57c26e } .step { stroke: #e58ac6 } .step-text { fill: #e58ac6 }
}
"""


def drawn(target: str, setting: Setting, outcome: Outcome) -> str:
    """The whole file."""
    points = outcome.curve
    chosen = outcome.proposal.num_workers.value if outcome.proposal is not None else None
    step = None if setting.step_s is None else 1 / setting.step_s
    ticks = _ticks(max(*(point.highest for point in points), step or 0.0))
    x, y = _Axis(0, len(points) - 1, _LEFT + 30, _WIDTH - _RIGHT - 30), _Axis(0, ticks[-1], _HEIGHT - _BOTTOM, _TOP)
    title = f"{one_line(target, 80)}: batches per second by workers"
    parts = [_text(_LEFT, 28, title, "title"), _text(_LEFT, 48, _subtitle(setting, outcome), "dim")]
    for tick in ticks:
        parts.append(_line(_LEFT, y(tick), _WIDTH - _RIGHT, y(tick), "grid"))
        parts.append(_text(_LEFT - 8, y(tick) + 4, f"{tick:g}", "dim", "end"))
    if step is not None:
        parts.append(_line(_LEFT, y(step), _WIDTH - _RIGHT, y(step), "step"))
        parts.append(_text(_WIDTH - _RIGHT, y(step) - 6, f"the step needs {rate(step)}", "step-text", "end"))
    path = " ".join(f"{x(k):.1f},{y(p.batches_per_s):.1f}" for k, p in enumerate(points) if not p.is_computed)
    parts.append(f'<polyline class="curve" points="{path}"/>')
    for number, point in enumerate(points):  # evenly, since the numbers double
        at, is_chosen = (x(number), y(point.batches_per_s)), point.num_workers == chosen
        parts.append(_line(at[0], y(point.lowest), at[0], y(point.highest), "range"))
        parts.append(_circle(*at, "point chosen" if is_chosen else "point", hollow=point.is_computed))
        parts.append(_text(at[0], y(point.highest) - 12, rate(point.batches_per_s), "", "middle"))
        parts.append(_text(at[0], _HEIGHT - _BOTTOM + 20, f"{point.num_workers}", "dim", "middle"))
    parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 12, "workers", "dim", "middle"))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(title, {chr(34): "&quot;"})}">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n"
        f'<rect width="100%" height="100%" fill="none"/>\n{body}\n</svg>\n'
    )


def _subtitle(setting: Setting, outcome: Outcome) -> str:
    chosen = outcome.proposal.num_workers.value if outcome.proposal is not None else None
    hollow = "; 0 is reckoned from the samples' times" if outcome.curve[0].is_computed else ""
    return f"batches of {setting.batch_size}, {plural(outcome.machine.cpus, 'CPU')}; proposed: {chosen}{hollow}"


class _Axis:
    """From values to places in the picture."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self._low, self._start = low, start
        self._scale = (end - start) / ((high - low) or 1)

    def __call__(self, value: float) -> float:
        return self._start + (value - self._low) * self._scale


def _ticks(highest: float) -> list[float]:
    """From 0 to at least the highest, in four to ten round steps."""
    raw = (highest or 1.0) / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * times for times in (1, 2, 5, 10) if power * times >= raw)
    return [number * step for number in range(math.ceil(highest * 1.05 / step) + 1)]


def _text(x: float, y: float, words: str, kind: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def _circle(x: float, y: float, kind: str, *, hollow: bool) -> str:
    fill = ' fill-opacity=".25"' if hollow else ""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5.5" class="{kind}"{fill}/>'
