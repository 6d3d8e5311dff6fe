import numpy as np
import pytest

from steinscope import InputError, compare, discrepancy, fit_critic, gof_test
from steinscope.critics import Linear
from steinscope.frames import coordinate_names, frame_numbers, is_frame
from steinscope.kernels import ksd_test
from steinscope.scoring import make_points

from containers import Array
from helpers import normal


class Frame:
    """What pandas and Polars share: columns, and numbers by `to_numpy`."""

    def __init__(self, columns):
        self.data = columns
        self.columns = list(columns)

    def to_numpy(self):
        return np.stack([np.asarray(column) for column in self.data.values()], 1)


def related(n=1000):
    """Income depends on age, which the standard normal does not say."""
    x = normal(n, 3).numpy()
    x[:, 2] = 0.8 * x[:, 0] + 0.6 * x[:, 2]
    return Frame(dict(zip(("age", "height", "income"), x.T, strict=True))), x


def test_the_columns_of_a_frame_name_the_coordinates():
    frame, x = related()
    assert is_frame(frame) and not is_frame(x) and not is_frame({"columns": 1})
    assert make_points(frame, -x).names == ("age", "height", "income")
    assert make_points(x, Frame({"a": -x[:, 0], "b": -x[:, 1], "c": -x[:, 2]})).names is None
    result = gof_test(frame, -x, critics="closed form")
    assert result.pvalue == gof_test(x, -x, critics="closed form").pvalue
    assert "age and income have correlation 0.8" in str(result)
    assert {tuple(finding["names"]) for finding in result.to_dict()["findings"]} >= {("age", "income")}
    assert ksd_test(frame, -x).pvalue == ksd_test(x, -x).pvalue


def test_scores_with_the_columns_of_the_points_have_their_order():
    frame, x = related()
    same = Frame({name: -column for name, column in frame.data.items()})
    other = Frame({name: same.data[name] for name in ("age", "income", "height")})
    own = Frame({f"score_{name}": column for name, column in same.data.items()})
    assert gof_test(frame, own, critics="mean").pvalue == gof_test(frame, same, critics="mean").pvalue
    problem = "column 1 of the scores is 'income', and 'height' in x; give both in the same order"
    for call in (lambda: gof_test(frame, other), lambda: discrepancy(frame, other), lambda: ksd_test(frame, other)):
        with pytest.raises(InputError, match=f"model: {problem}"):
            call()
    with pytest.raises(InputError, match=f"score: {problem}"):
        fit_critic(Linear(3), frame, other)


def test_explanations_and_their_figures_use_the_names():
    frame, x = related()
    explanation = gof_test(frame, -x, critics="closed form").explain()
    assert explanation.label(2) == "income" and "\nincome" in str(explanation) and "x[" not in str(explanation)
    assert explanation.to_dict()["names"] == ["age", "height", "income"]
    figure = explanation.plot()
    assert {label.get_text() for label in figure.axes[0].get_yticklabels()} == {"age", "height", "income"}


def test_names_given_take_precedence():
    frame, x = related()
    names = ["a", "b", "$c$"]
    assert gof_test(frame, -x, critics="additive", names=names).findings[0].names == ("a", "$c$")
    assert discrepancy(x, -x, critics="closed form", names=names).explain().names == tuple(names)
    ranking = compare({"model": -x}, frame, critics="closed form")
    assert ranking.estimates["model"].explain().names == ("age", "height", "income")


@pytest.mark.parametrize(
    "names, message",
    [
        (["a"], "names: expected one for each of 3 coordinates, got 1"),
        ("abc", "names: expected one string for each coordinate, got 'abc'"),
        (np.array("a"), "names: expected one string for each coordinate, got array"),
        (iter("ab"), "names: expected one for each of 3 coordinates, got 2"),
        (["a", "b", "a"], "names: two coordinates are called 'a'$"),
        ([1, 2, 3], r"names: expected one string for each coordinate, got \[1, 2, 3\]"),
    ],
)
def test_bad_names(names, message):
    with pytest.raises(InputError, match=message):
        coordinate_names(np.ones((2, 3)), names, 3)


def test_a_column_without_numbers_is_named():
    assert frame_numbers(Frame({"a": [1, 2], "b": [0.5, None]}), "x").tolist()[0] == [1.0, 0.5]
    with pytest.raises(InputError, match="x: column 'city' holds 'Rome', expected numbers"):
        make_points(Frame({"a": [1.0, 2.0], "city": ["Rome", "Oslo"]}), None)
    with pytest.raises(InputError, match="x: row 1 holds nan"):
        make_points(Frame({"a": [1, 2], "b": [0.5, None]}), None)


def test_names_come_from_the_coordinates_of_an_xarray():
    names = Array(np.array(["age", "income"]), ["column"])
    assert coordinate_names(Array(np.zeros((3, 2)), ["row", "column"], {"column": names}), None, 2) == ("age", "income")
    assert coordinate_names(Array(np.zeros((3, 2)), ["row", "column"]), None, 2) is None
    assert coordinate_names(np.zeros((3, 2)), None, 2) is None


@pytest.mark.parametrize("call", [gof_test, discrepancy, lambda x, scores, **how: compare({"a": scores}, x, **how)])
def test_two_coordinates_of_one_name_are_refused(call):
    x = normal(120, 2).numpy()
    with pytest.raises(InputError, match="^names: two coordinates are called 'a'$"):
        call(x, -x, critics="closed form", names=["a", "a"])
    frame = Frame({"a": x[:, 0], "b": x[:, 1]})
    frame.columns = ["a", "a"]
    with pytest.raises(InputError, match="^x: two columns are called 'a'; rename one"):
        call(frame, -x, critics="closed form")
    # Names that are given stand for those of the columns.
    call(frame, -x, critics="closed form", names=["a", "b"])
