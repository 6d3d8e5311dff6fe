"""Draw the modules of the package and the flow of data: `python docs/draw_inside.py` writes docs/inside.svg."""

from html import escape
from pathlib import Path

WIDTH, HEIGHT = 900, 676
DATA, ROOM, TEXT = "#b3470b", "#eef2f7", "#1d2733"

STYLE = f"""
text {{ font-family: sans-serif; fill: {TEXT}; text-anchor: middle; }}
.name {{ font-size: 16px; font-weight: 600; }}
.note {{ font-size: 14px; }}
.layer {{ font-size: 14px; fill: #5b6775; text-anchor: start; }}
.label {{ font-size: 14px; fill: {DATA}; }}
.start {{ text-anchor: start; }}
.room {{ fill: {ROOM}; stroke: #9aa7b5; }}
.way {{ stroke: {DATA}; stroke-width: 2; fill: none; marker-end: url(#tip); }}
.back {{ stroke-dasharray: 6 4; }}
"""


def room(left, top, width, names, *notes, height=66):
    """A box with names and lines below them."""
    lines = [*((name, "name") for name in names.split("\n")), *((note, "note") for note in notes)]
    first = top + height / 2 + 15 - 9.5 * len(lines)
    parts = [f'<rect class="room" x="{left}" y="{top}" width="{width}" height="{height}" rx="6"/>']
    parts += [text(left + width / 2, first + 19 * i, words, kind) for i, (words, kind) in enumerate(lines)]
    return "".join(parts)


def text(x, y, words, kind):
    return f'<text class="{kind}" x="{x}" y="{y}">{escape(words)}</text>'


def layer(y, words):
    """The name of a layer, at the left."""
    return text(10, y, words, "layer")


def way(*points, kind="way"):
    """An arrow along which data go."""
    path = " ".join(f"{x},{y}" for x, y in points)
    return f'<polyline class="{kind}" points="{path}"/>'


def draw():
    parts = [
        layer(58, "interface"),
        room(130, 20, 365, "commands, cli", "steinscope test, compare, train, …"),
        room(515, 20, 365, "experiments", "what the paper shows, and the demo"),
        layer(148, "output"),
        room(130, 110, 365, "report", "one HTML page"),
        room(515, 110, 365, "plots", "figures"),
        layer(276, "answers"),
        room(130, 226, 150, "kernels", "KSD, MMD, …", "p-value", height=90),
        room(300, 226, 180, "portfolio, modes\ngof, streams", "Does it fit?", "z and p-value", height=90),
        room(500, 226, 180, "estimation\ncomparison", "How far is it off?", "mean ± s.e.", height=90),
        room(700, 226, 180, "objectives\ntraining", "Can it be trained?", "gradient in θ", height=90),
        layer(436, "Stein values"),
        room(300, 396, 150, "critics", "f(x) and ∇·f(x)"),
        room(510, 396, 180, "stein", "s(x)·f(x) + ∇·f(x)"),
        room(710, 396, 120, "results\neffects"),
        layer(524, "input"),
        room(130, 500, 170, "points, chains", "x and s, checked"),
        room(340, 500, 150, "densities", "s = ∇ log q(x)"),
        room(530, 500, 220, "models, samplers", "EBM, RBM, MALA, …"),
        room(770, 500, 110, "data", "sets, files"),
        layer(628, "shared"),
        room(
            130,
            590,
            750,
            "errors, shapes, frames, support, metric, registries, settings, maps",
            "what everything above may use",
        ),
        text(10, 553, "x, model", "label start"),
        way((74, 548), (126, 548)),
        way((340, 533), (304, 533)),
        way((530, 533), (494, 533)),
        way((205, 500), (205, 320)),
        text(212, 408, "x, s", "label start"),
        way((270, 500), (330, 466)),
        way((450, 429), (506, 429)),
        text(478, 418, "f, ∇·f", "label"),
        way((540, 396), (400, 320)),
        way((600, 396), (590, 320)),
        way((660, 396), (780, 320)),
        text(305, 378, "one value for each point", "label start"),
        way((205, 226), (205, 180)),
        text(212, 208, "TestResult", "label start"),
        way((390, 226), (390, 180)),
        text(397, 208, "TestResult", "label start"),
        way((590, 226), (590, 180)),
        text(597, 208, "Estimate, Ranking", "label start"),
        way((790, 226), (790, 180)),
        text(797, 208, "TrainResult", "label start"),
        way((858, 316), (858, 482), (700, 482), (700, 496), kind="way back"),
        text(848, 400, "θ", "label"),
    ]
    tip = (
        '<marker id="tip" markerWidth="7" markerHeight="6" refX="6" refY="3" orient="auto">'
        f'<path d="M0,0 L6,3 L0,6 z" fill="{DATA}"/></marker>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">'
        f"<style>{STYLE}</style><defs>{tip}</defs>"
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>{"".join(parts)}</svg>\n'
    )


if __name__ == "__main__":
    Path(__file__).with_name("inside.svg").write_text(draw())
