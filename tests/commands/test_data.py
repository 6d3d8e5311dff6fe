"""`steinscope data`."""

import pytest

from helpers import run_command


def test_a_download_that_fails_is_one_line(tmp_path):
    done = run_command("data", "mnist", "--out", str(tmp_path), "--source", "http://127.0.0.1:1/")
    assert done.returncode == 1 and done.stdout == ""
    assert "steinscope: http://127.0.0.1:1/train-images-idx3-ubyte.gz: gave up after 4 tries" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("source", ["here", "http://[bad", "https://", "http://here:port/", "://", "http://here:99999"])
def test_a_source_must_be_an_address(command, tmp_path, source):
    done = command("data", "mnist", "--out", tmp_path, "--source", source)
    assert done.code == 2 and "steinscope: source: expected an address such as https" in done.err
