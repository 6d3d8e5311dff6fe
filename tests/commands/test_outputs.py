import json
import math
import os

import pytest

from steinscope import InputError
from steinscope.commands.outputs import check_output, json_text, write_csv, write_output


def test_json_knows_no_nan():
    value = {"a": [1.0, math.nan, (math.inf, 2)], "b": {"c": -math.inf, "d": "µ"}, "e": None}
    text = json_text(value)
    assert json.loads(text) == {"a": [1.0, None, [None, 2]], "b": {"c": None, "d": "µ"}, "e": None} and "µ" in text


def test_files_are_written_into_new_directories(tmp_path):
    write_output(tmp_path / "new/a.html", "text", "report")
    write_csv(tmp_path / "new/b.csv", [{"a": 1, "b": None}], "csv")
    assert (tmp_path / "new/a.html").read_text() == "text" and (tmp_path / "new/b.csv").read_text() == "a,b\n1,\n"


def test_what_cannot_be_written_is_said_in_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="report: cannot write .*file/a.html: "):
        write_output(tmp_path / "file/a.html", "text", "report")


@pytest.mark.parametrize(
    "check, message",
    [
        (lambda path: check_output(path / "a.txt", "report", ".html"), "report: expected a name that ends in .html"),
        (lambda path: check_output(path, "report", ".html"), "report: .* is a directory, expected the name of a .html"),
        (
            lambda path: check_output(path / "file/a.html", "report", ".html"),
            "report: .*file is a file, so .* cannot be",
        ),
    ],
)
def test_it_is_said_before_the_work_starts(tmp_path, check, message):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=message):
        check(tmp_path)
    check_output(tmp_path / "new/a.html", "report", ".html")
    check_output(None, "report", ".html")
    assert os.listdir(tmp_path) == ["file"]
