"""`steinscope demo`."""

import pytest


@pytest.mark.slow
def test_the_demo_ranks_and_tests_models_and_writes_what_it_names(command, tmp_path):
    done = command("demo", "--out", tmp_path, "--points", 4000, "--steps", 40)
    assert done.code == 0 and done.err == ""
    table = [line for line in done.out.splitlines() if line[:1] in ("1", "2", "3", "4") and " ± " in line]
    models = ("one Gaussian", "two Gaussians", "early EBM", "trained EBM")
    assert len(table) == 4 and all(any(name in line for line in table) for name in models)
    assert all("rejected, p = " in line or "nothing found, p = " in line for line in table)
    page = (tmp_path / "report.html").read_text()
    assert all(page.count(name) >= 3 for name in models) and page.count("data:image/png") == 4
    assert (tmp_path / "demo.png").stat().st_size > 20_000
    (suggested,) = [line.split()[1:] for line in done.out.splitlines() if "steinscope test" in line]
    assert "the model is rejected" in command(*suggested).out


@pytest.mark.parametrize("option", ["--points", "--steps"])
def test_a_demo_that_is_too_small_is_refused(command, tmp_path, option):
    done = command("demo", "--out", tmp_path, option, 5)
    assert (
        done.code == 2 and f"steinscope: {option[2:]}: expected at least" in done.err and not list(tmp_path.iterdir())
    )
