"""Calls of every public function with whatever users might pass; `fuzz.py` says what may come of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import CAMPAIGN

CALLS = {"ci": 500, "soak": 500, "fuzz": 10_000}[CAMPAIGN]


@pytest.mark.slow
def test_no_call_ends_in_anything_but_a_result_or_one_line():
    command = [sys.executable, str(Path(__file__).with_name("fuzz.py")), "--cases", str(CALLS)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{CALLS} calls, 0 kinds of failure" in done.stdout
