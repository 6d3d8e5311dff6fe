import copy
import pickle
import zlib

import pytest

from steinscope import InputError
from steinscope.errors import DownloadError, NonFiniteError, first_line


def test_an_input_error_names_the_argument_and_the_problem():
    error = InputError("alpha", "expected a number between 0 and 1, got 2")
    assert str(error) == "alpha: expected a number between 0 and 1, got 2" and isinstance(error, ValueError)
    assert (error.argument, error.problem) == ("alpha", "expected a number between 0 and 1, got 2")


def test_a_problem_can_be_that_of_another_name():
    error = InputError("model", "it has no score")
    renamed = error.renamed("models['a']")
    assert str(renamed) == "models['a']: it has no score" and error.argument == "model"


@pytest.mark.parametrize("error", [InputError("x", "too few"), NonFiniteError("step 3"), DownloadError("gave up")])
def test_errors_come_out_of_other_processes(error):
    """joblib pickles what a trial raises."""
    for same in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(same) is type(error) and str(same) == str(error) and same.args == error.args


@pytest.mark.parametrize(
    "error, text",
    [
        (RuntimeError("first\nsecond"), "RuntimeError: first"),
        (ValueError("\n first \nsecond"), "first"),
        (KeyError("a"), "KeyError: 'a'"),
        (EOFError(), "EOFError"),
        (zlib.error("Error -3"), "Error -3"),
        (ValueError("x" * 1000), "x" * 199 + "…"),
    ],
)
def test_the_first_line_of_an_error(error, text):
    assert first_line(error) == text
