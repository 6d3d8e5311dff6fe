"""Draw the picture of docs/separated-modes.md: `python docs/draw_modes.py` writes docs/separated-modes.png."""

import re
from pathlib import Path

from steinscope.plots import save_figure

HERE = Path(__file__).parent

if __name__ == "__main__":
    # The page's own first block, so that the picture shows what the page prints.
    block = re.findall(r"```python\n(.*?)```", (HERE / "separated-modes.md").read_text(), re.DOTALL)[0]
    names = {}
    exec(compile(block, "separated-modes.md", "exec"), names)
    figure = names["mode_weights"](names["x"], names["model"]).plot()
    save_figure(figure, HERE / "separated-modes.png")
