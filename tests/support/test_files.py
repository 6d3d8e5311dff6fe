import csv
import io
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steinscope.support import files
from steinscope.support.files import csv_text, write_file


def test_a_file_is_written_as_a_whole(tmp_path):
    write_file(tmp_path / "a", b"first")
    write_file(tmp_path / "a", b"second")
    assert (tmp_path / "a").read_bytes() == b"second" and os.listdir(tmp_path) == ["a"]


def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    write_file(tmp_path / "a", b"first")

    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        write_file(tmp_path / "a", b"second")
    assert (tmp_path / "a").read_bytes() == b"first" and os.listdir(tmp_path) == ["a"]


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=8)


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=4))
def test_tables_go_there_and_back(rows):
    text = csv_text([{"name": name, 'with, "marks"': value} for name, value in rows])
    back = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [(row["name"], row['with, "marks"']) for row in back] == rows
