"""Charts as inline SVG. Colours are classes of the page, so that a chart follows the light or dark of its reader.

Charts are 360 units wide, about as wide as a phone, so that their letters are never too small.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup, escape

from steinscope.support.squashed import squashed_below

__all__ = ["density_chart", "field_chart", "interval_chart", "line_chart", "number", "scatter_chart"]

WIDTH = 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 10, 8, 34
_ROW = 18
_MOST_POINTS = 1500


def number(value: float | None, digits: int = 4) -> str:
    """A number as text, with a true minus sign; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    text = f"{value:.{digits}g}"
    # 127400 is read more easily than 1.274e+05.
    text = f"{float(text):.0f}" if "e+" in text and abs(value) < 1e7 else text
    return text.replace("-", "−")


def interval_chart(
    title: str,
    labels: Sequence[str],
    values: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    axis: str,
    description: str,
    *,
    rings: np.ndarray | None = None,
) -> Markup:
    """A dot with its interval in each row, and a line at zero; with `rings`, a second value as a ring.

    Where one value would squash all others the axis is logarithmic, and says so.
    """
    longest = max((len(_short(label)) for label in labels), default=0)
    left = min(150, 16 + int(6.2 * longest))
    height = _TOP + _ROW * len(labels) + _BOTTOM
    start, stop = _range(np.concatenate([low, high, [0.0], [] if rings is None else rings]))
    threshold = squashed_below(values, high - values) if rings is None else None
    if threshold is None:
        scale = _Scale(start, stop, left, WIDTH - _RIGHT)
    else:
        ends = np.append(np.concatenate([low, high]), 0.0)
        scale = _BentScale(float(ends.min()), float(ends.max()), left, WIDTH - _RIGHT, threshold)
        axis = f"{axis}, log scale"
    parts = [_horizontal_axis(scale, height - _BOTTOM, axis)]
    parts.append(_line(scale(0.0), _TOP, scale(0.0), height - _BOTTOM, "zero"))
    for row, label in enumerate(labels):
        y = _TOP + _ROW * (row + 0.5)
        parts.append(
            Markup('<text class="label" x="{}" y="{}" text-anchor="end"><title>{}</title>{}</text>').format(
                left - 8, _f(y + 4), label, _short(label)
            )
        )
        parts.append(_line(scale(low[row]), y, scale(high[row]), y, "interval"))
        parts.append(Markup('<circle class="dot" cx="{}" cy="{}" r="3.5"/>').format(_f(scale(values[row])), _f(y)))
        if rings is not None:
            parts.append(Markup('<circle class="ring" cx="{}" cy="{}" r="5.5"/>').format(_f(scale(rings[row])), _f(y)))
    return _figure(title, description, height, parts)


def line_chart(
    title: str, x: np.ndarray, y: np.ndarray, x_axis: str, y_axis: str, description: str, *, marks: bool = False
) -> Markup:
    """A curve, with a line at zero where zero is in view; with `marks`, or for a single value, dots instead."""
    finite = np.isfinite(y)
    x, y = np.asarray(x, dtype=np.float64)[finite], np.asarray(y, dtype=np.float64)[finite]
    frame = _Frame(_range(x), _range(np.append(y, 0.0) if marks else y), height=220)
    parts = [frame.axes(x_axis, y_axis)]
    if frame.vertical.start < 0 < frame.vertical.stop:
        parts.append(_line(frame.left, frame.vertical(0.0), WIDTH - _RIGHT, frame.vertical(0.0), "zero"))
    places = [(frame.horizontal(a), frame.vertical(b)) for a, b in zip(x, y, strict=True)]
    if marks or len(places) < 2:
        parts += [Markup('<circle class="dot" cx="{}" cy="{}" r="3.5"/>').format(_f(a), _f(b)) for a, b in places]
    else:
        path = "L".join(f"{_f(a)} {_f(b)}" for a, b in places)
        parts.append(Markup('<path class="curve" d="M{}"/>').format(path))
    return _figure(title, description, 220, parts)


def field_chart(
    title: str, points: np.ndarray, places: np.ndarray, arrows: np.ndarray, axes: tuple[str, str], description: str
) -> Markup:
    """Points, and arrows at places (m, 2). Lengths are saturated, so that a single long arrow hides nothing."""
    frame = _Frame(_range(points[:, 0]), _range(points[:, 1]), height=330)
    lengths = np.linalg.norm(arrows, axis=1, keepdims=True)
    typical = float(np.median(lengths)) or 1.0
    # About as long as the distance between two arrows at most.
    shown = arrows / (lengths + typical) * 26.0
    marker = Markup(
        '<defs><marker id="head" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="5" markerHeight="5" orient="auto">'
        '<path class="arrowhead" d="M0 0L8 4L0 8z"/></marker></defs>'
    )
    parts = [marker, frame.axes(*axes), _dots(frame, points, "points")]
    for place, arrow in zip(places, shown, strict=True):
        x, y = frame.horizontal(place[0]), frame.vertical(place[1])
        if math.hypot(*arrow) > 2.0:
            parts.append(
                Markup('<path class="arrow" marker-end="url(#head)" d="M{} {}L{} {}"/>').format(
                    _f(x), _f(y), _f(x + arrow[0]), _f(y - arrow[1])
                )
            )
    return _figure(title, description, 330, parts)


def scatter_chart(title: str, first: np.ndarray, second: np.ndarray, axes: tuple[str, str], description: str) -> Markup:
    """Two sets of points in the plane, the first below the second."""
    both = np.concatenate([first, second])
    frame = _Frame(_range(both[:, 0]), _range(both[:, 1]), height=330)
    parts = [frame.axes(*axes), _dots(frame, first, "points"), _dots(frame, second, "points second")]
    return _figure(title, description, 330, parts)


def density_chart(
    title: str,
    density: np.ndarray,
    extent: tuple[float, float, float, float],
    points: np.ndarray,
    axes: tuple[str, str],
    description: str,
) -> Markup:
    """A density on a grid (rows from below) as shades, with points on it; extent is (left, right, bottom, top)."""
    frame = _Frame((extent[0], extent[1]), (extent[2], extent[3]), height=330)
    left, right = frame.horizontal(extent[0]), frame.horizontal(extent[1])
    top, bottom = frame.vertical(extent[3]), frame.vertical(extent[2])
    image = Markup('<image x="{}" y="{}" width="{}" height="{}" preserveAspectRatio="none" href="{}"/>').format(
        _f(left), _f(top), _f(right - left), _f(bottom - top), _shades(density)
    )
    return _figure(title, description, 330, [image, frame.axes(*axes), _dots(frame, points, "points small")])


def _shades(density: np.ndarray) -> str:
    """The density as the opacity of one colour, as the address of a PNG image."""
    from matplotlib.image import imsave

    image = np.empty((*density.shape, 4))
    image[..., :3] = np.array([0x4C, 0x8D, 0xD6]) / 255
    image[..., 3] = np.clip(density / max(float(density.max()), 1e-300), 0.0, 1.0) ** 0.7
    buffer = io.BytesIO()
    imsave(buffer, image[::-1], format="png")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


class _Scale:
    """From numbers to places along an axis."""

    def __init__(self, start: float, stop: float, first: float, last: float) -> None:
        self.start, self.stop, self.first, self.last = start, stop, first, last

    def __call__(self, value: float) -> float:
        return self.first + (float(value) - self.start) / (self.stop - self.start) * (self.last - self.first)

    def ticks(self, count: int = 5) -> list[float]:
        """Round numbers along the axis."""
        rough = (self.stop - self.start) / count
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
        first = math.ceil(self.start / step - 1e-9)
        return [0.0 if n == 0 else n * step for n in range(first, math.floor(self.stop / step + 1e-9) + 1)]


class _BentScale(_Scale):
    """A scale that is linear up to a threshold on both sides of zero, and logarithmic beyond."""

    def __init__(self, start: float, stop: float, first: float, last: float, threshold: float) -> None:
        super().__init__(start, stop, first, last)
        self.threshold = threshold
        margin = 0.04 * (self._bent(stop) - self._bent(start))
        self.ends = self._bent(start) - margin, self._bent(stop) + margin

    def _bent(self, value: float) -> float:
        far = abs(value) / self.threshold
        return math.copysign(far if far <= 1 else 1 + math.log10(far), value)

    def __call__(self, value: float) -> float:
        low, high = self.ends
        return self.first + (self._bent(float(value)) - low) / (high - low) * (self.last - self.first)

    def ticks(self, count: int = 5) -> list[float]:
        """Zero and powers of ten, as many of them as there is room for."""
        decades = [math.floor(bent - 1 + 1e-9) for bent in (-self.ends[0], self.ends[1])]
        every = max(1, math.ceil(sum(max(0, decade + 1) for decade in decades) / count))
        sides = [
            [sign * self.threshold * 10.0**k for k in range(0, decade + 1, every)]
            for sign, decade in zip((-1.0, 1.0), decades, strict=True)
        ]
        return [*reversed(sides[0]), 0.0, *sides[1]]


class _Frame:
    """Two axes around a plane."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float], height: int) -> None:
        self.height = height
        self.vertical = _Scale(*y, height - _BOTTOM, _TOP)
        # Between the numbers of the vertical axis and its name there must be some room.
        self.left = max(_LEFT, 26 + 6 * max(len(_tick(tick)) for tick in self.vertical.ticks()))
        self.horizontal = _Scale(*x, self.left, WIDTH - _RIGHT)

    def axes(self, x_axis: str, y_axis: str) -> Markup:
        parts = [_horizontal_axis(self.horizontal, self.height - _BOTTOM, x_axis)]
        for tick in self.vertical.ticks():
            y = self.vertical(tick)
            parts.append(_line(self.left - 4, y, self.left, y, "tick"))
            parts.append(
                Markup('<text class="tick-label" x="{}" y="{}" text-anchor="end">{}</text>').format(
                    self.left - 6, _f(y + 4), _tick(tick)
                )
            )
        parts.append(_line(self.left, _TOP, self.left, self.height - _BOTTOM, "axis"))
        middle = (_TOP + self.height - _BOTTOM) / 2
        parts.append(
            Markup(
                '<text class="label" transform="translate(10 {}) rotate(-90)" text-anchor="middle">{}</text>'
            ).format(_f(middle), _short(y_axis, 40))
        )
        return Markup("").join(parts)


def _horizontal_axis(scale: _Scale, y: float, name: str) -> Markup:
    """The line, ticks and name below a chart."""
    parts = [_line(scale.first, y, scale.last, y, "axis")]
    for tick in scale.ticks():
        x = scale(tick)
        parts.append(_line(x, y, x, y + 4, "tick"))
        parts.append(
            Markup('<text class="tick-label" x="{}" y="{}" text-anchor="middle">{}</text>').format(
                _f(x), _f(y + 15), _tick(tick)
            )
        )
    parts.append(
        Markup('<text class="label" x="{}" y="{}" text-anchor="middle">{}</text>').format(
            _f((scale.first + scale.last) / 2), _f(y + 30), _short(name, 52)
        )
    )
    return Markup("").join(parts)


def _tick(value: float) -> str:
    """The number at a tick, such as 20000 and not 2e+04."""
    return number(value, 6)


def _dots(frame: _Frame, points: np.ndarray, name: str) -> Markup:
    """Many points as one path of dots; those outside of the frame are left out."""
    inside = [
        (frame.horizontal(x), frame.vertical(y))
        for x, y in points[:_MOST_POINTS]
        if frame.horizontal.start <= x <= frame.horizontal.stop and frame.vertical.start <= y <= frame.vertical.stop
    ]
    path = "".join(f"M{_f(x)} {_f(y)}h0" for x, y in inside)
    return Markup('<path class="{}" d="{}"/>').format(name, path)


def _figure(title: str, description: str, height: float, parts: Sequence[Markup]) -> Markup:
    return Markup(
        '<figure><svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg><figcaption>{}</figcaption></figure>'
    ).format(WIDTH, _f(height), f"{title}. {description}", Markup("").join(parts), title)


def _line(x1: float, y1: float, x2: float, y2: float, name: str) -> Markup:
    return Markup('<path class="{}" d="M{} {}L{} {}"/>').format(name, _f(x1), _f(y1), _f(x2), _f(y2))


def _range(values: np.ndarray) -> tuple[float, float]:
    """From the least to the largest, and a little more."""
    finite = np.asarray(values, dtype=np.float64)
    finite = finite[np.isfinite(finite)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    margin = 0.04 * (high - low) or 0.5 * abs(high) or 1.0
    return low - margin, high + margin


def _short(text: str, length: int = 22) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _f(value: float) -> str:
    """A place with one decimal."""
    return str(escape(f"{value:.1f}".removesuffix(".0")))
