import numpy as np
import pytest

from steinscope.support.files import sealed_json


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty current directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def arrays(here):
    """Points of two correlated coordinates in the current directory, with scores and models of them."""
    x = np.random.default_rng(0).standard_normal((300, 3)).astype(np.float32)
    np.save("good.npy", x)
    x[:, 1] = 0.6 * x[:, 1] + 0.8 * x[:, 2]
    np.save("x.npy", x)
    np.save("scores.npy", -x)
    np.save("wide.npy", -x / 1.5)
    broken = x.copy()
    broken[17, 2] = np.nan
    np.save("broken.npy", broken)
    (here / "standard_models.py").write_text(
        "import torch\nfrom steinscope.models.gaussian import Gaussian\n"
        "class Group:\n    normal = Gaussian(torch.zeros(3))\n"
        "normal = Group.normal\ndef fn(x):\n    return x\n"
    )
    (here / "failing_models.py").write_text("raise RuntimeError('first line\\nsecond')")
    (here / "ending_models.py").write_text("import sys\nsys.exit(5)")
    (here / "needing_models.py").write_text("import a_module_that_is_not_there")
    return x


@pytest.fixture
def runs(here):
    """Files and directories that are no whole runs of `steinscope train`."""
    np.save("broken.npy", [[1.0], [np.nan]])
    np.save("images.npy", np.ones((100, 2, 2)))
    (here / "numbers.csv").write_text("0,1\n2,3\n")
    for name, content in (("other", b"{}"), ("new", sealed_json({"settings": {"data": "moons"}, "shape": [2]}))):
        (here / name).mkdir()
        (here / name / "run.json").write_bytes(content)
    return here
