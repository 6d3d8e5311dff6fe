import pytest

from steinscope.commands.inputs import named
from steinscope.errors import InputError


def test_names_of_models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lr=1.npy").touch()
    (tmp_path / "run.1").mkdir()
    assert named("score", ["lr=1.npy"]) == {"lr=1": "lr=1.npy"}
    assert named("model", ["run.1", "a.b:c.d", "x=a:b"]) == {"run.1": "run.1", "c.d": "a.b:c.d", "x": "a:b"}
    with pytest.raises(InputError, match="model: expected NAME=SOURCE or SOURCE, got 'x='"):
        named("model", ["x="])
