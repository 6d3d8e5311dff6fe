import csv
import io
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steinscope import InputError
from steinscope.support import files
from steinscope.support.files import check_directory, csv_text, read_sealed, remove_leftovers, sealed_json, write_file


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


def test_a_planted_link_is_not_followed(tmp_path, monkeypatch):
    (tmp_path / "victim").write_bytes(b"precious")
    names = iter(["0" * 16, "1" * 16])
    monkeypatch.setattr(files.secrets, "token_hex", lambda _: next(names))
    (tmp_path / f".steinscope-{'0' * 16}.tmp").symlink_to(tmp_path / "victim")
    with pytest.raises(FileExistsError):
        write_file(tmp_path / "a", b"content")
    write_file(tmp_path / "a", b"content")
    assert (tmp_path / "victim").read_bytes() == b"precious" and (tmp_path / "a").read_bytes() == b"content"


def test_new_files_have_the_permissions_of_any_file(tmp_path):
    (tmp_path / "other").write_bytes(b"")
    write_file(tmp_path / "a", b"")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_name_may_be_as_long_as_the_system_allows(tmp_path):
    write_file(tmp_path / ("a" * 255), b"content")
    assert len(os.listdir(tmp_path)) == 1


def test_threads_that_write_one_path_do_not_tear_it(tmp_path):
    contents = [bytes([number]) * 100_000 for number in range(8)]
    write_file(tmp_path / "a", contents[0])
    with ThreadPoolExecutor(9) as pool:
        writers = [pool.submit(write_file, tmp_path / "a", content) for content in contents * 5]
        while not all(writer.done() for writer in writers):
            assert (tmp_path / "a").read_bytes() in contents
    assert [writer.result() for writer in writers] == [None] * 40
    assert os.listdir(tmp_path) == ["a"]


KILLED = """
import os, signal, sys
from pathlib import Path
from steinscope.support import files
files.os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
files.write_file(Path(sys.argv[1]), b"content")
"""


def test_what_a_killed_process_leaves_is_removed_by_the_next(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "a")])
    assert done.returncode == -signal.SIGKILL
    (left,) = os.listdir(tmp_path)
    others = [".steinscope-notes.tmp", f"steinscope-{'0' * 16}.tmp", f".steinscope-{'0' * 16}.tmp.old"]
    for name in others:
        (tmp_path / name).touch()
    write_file(tmp_path / "b", b"content")
    assert left.startswith(".steinscope-") and sorted(os.listdir(tmp_path)) == sorted([*others, "b"])


def test_what_another_process_is_writing_is_left_alone(tmp_path):
    temporary, file = files._open_temporary(tmp_path)
    with file:
        remove_leftovers(tmp_path)
        assert temporary.exists()
    remove_leftovers(tmp_path)
    assert not temporary.exists()


def test_a_file_taken_for_a_leftover_before_it_was_locked_is_made_anew(tmp_path, monkeypatch):
    lock, calls = files.fcntl.flock, []

    def removed_first(file, operation):
        if not calls:
            calls.append(os.listdir(tmp_path))
            for name in calls[0]:
                (tmp_path / name).unlink()
        lock(file, operation)

    monkeypatch.setattr(files.fcntl, "flock", removed_first)
    write_file(tmp_path / "a", b"content")
    assert len(calls[0]) == 1 and (tmp_path / "a").read_bytes() == b"content" and os.listdir(tmp_path) == ["a"]


RECORDS = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=5,
    ),
    max_size=4,
).filter(lambda record: "checksum" not in record)


@given(RECORDS, st.randoms(use_true_random=False))
def test_a_sealed_record_comes_back_or_is_refused(record, chance):
    content = sealed_json(record)
    assert read_sealed(content) == record
    position = chance.randrange(len(content))
    changed = content[:position] + bytes([content[position] ^ (1 << chance.randrange(8))]) + content[position + 1 :]
    with suppress(ValueError):
        assert read_sealed(changed) == record


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"checksum": "0"}', b"[" * 100_000, b"\xff"])
def test_what_is_no_sealed_record(content):
    with pytest.raises(ValueError):
        read_sealed(content)


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=8)


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=4))
def test_tables_go_there_and_back(rows):
    text = csv_text([{"name": name, 'with, "marks"': value} for name, value in rows])
    back = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [(row["name"], row['with, "marks"']) for row in back] == rows


def test_directories_are_checked_before_the_work_starts(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    (tmp_path / "lost").symlink_to(tmp_path / "nowhere")
    for path in ("file", "file/new", "lost"):
        with pytest.raises(InputError, match="out: .*(file|lost) is a file, expected a directory"):
            check_directory(tmp_path / path, "out")
    check_directory(tmp_path / "new/deep", "out")
    check_directory(None, "out")
    assert sorted(os.listdir(tmp_path)) == ["file", "lost"]
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InputError, match="out: nothing can be written into .*: permission denied"):
        check_directory(Path(tmp_path) / "new", "out")
