import json
import sys
import tracemalloc
import zipfile

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from steinscope import InputError
from steinscope.data import read_table, tables, unpacking
from steinscope.data.tables import load_table
from steinscope.points import check_rows

X = np.array([[1.0, -2.5], [3e-3, 4.0], [5.0, 6.0]])


def test_every_kind_of_file_gives_the_same_array(tmp_path):
    np.save(tmp_path / "a.npy", X)
    np.savez(tmp_path / "a.npz", X)
    np.savetxt(tmp_path / "a.csv", X, delimiter=",")
    np.savetxt(tmp_path / "named.csv", X, delimiter=";", header="first;second", comments="")
    (tmp_path / "bom.csv").write_text("\ufeff1,-2.5\n0.003,4\n5,6\n", encoding="utf-8")
    pyarrow.parquet.write_table(pyarrow.table({"a": X[:, 0], "b": X[:, 1]}), tmp_path / "a.parquet")
    for name in ("a.npy", "a.npz", "a.csv", "named.csv", "bom.csv", "a.parquet"):
        array = read_table(tmp_path / name, "x")
        np.testing.assert_array_equal(array, X, err_msg=name)
        assert array.dtype == np.float64


MATRICES = st_numpy.array_shapes(min_dims=2, max_dims=2, max_side=4)
FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(
    st_numpy.arrays(np.float64, MATRICES, elements=FINITE),
    st.sampled_from([",", ";", "\t"]),
    st.booleans(),
    st.sampled_from(["\n", "\r\n"]),
)
def test_any_table_of_numbers_comes_back_from_csv(tmp_path_factory, array, delimiter, has_names, end):
    lines = [delimiter.join(map(repr, row)) for row in array.tolist()]
    if has_names:
        lines.insert(0, delimiter.join(f"x{number}" for number in range(array.shape[1])))
    path = tmp_path_factory.getbasetemp() / "table.csv"
    path.write_bytes((end.join(lines) + end).encode())
    np.testing.assert_array_equal(read_table(path, "x"), array)


@given(
    st_numpy.arrays(
        st_numpy.floating_dtypes(sizes=(16, 32, 64)) | st_numpy.integer_dtypes() | st_numpy.boolean_dtypes(),
        st_numpy.array_shapes(max_dims=3, max_side=4),
    )
)
def test_any_array_of_numbers_comes_back_from_npy_and_npz(tmp_path_factory, array):
    folder = tmp_path_factory.getbasetemp()
    np.save(folder / "array.npy", array)
    np.savez(folder / "array.npz", array)
    for name in ("array.npy", "array.npz"):
        back = read_table(folder / name, "x")
        np.testing.assert_array_equal(back, array)
        assert back.dtype == array.dtype.newbyteorder("=") and back.dtype.isnative


def test_a_large_npy_file_stays_on_the_disk(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", X)
    assert not isinstance(read_table(tmp_path / "a.npy", "x"), np.memmap)
    monkeypatch.setattr(tables, "_MEMORY_BYTES", 0)
    on_disk = read_table(tmp_path / "a.npy", "x")
    assert isinstance(on_disk, np.memmap)
    np.testing.assert_array_equal(on_disk, X)


@pytest.mark.parametrize("dtype", [">f8", ">f4", np.longdouble, np.float16, np.int32, bool])
def test_every_kind_of_number_can_be_used(tmp_path, dtype):
    np.save(tmp_path / "a.npy", X.astype(dtype))
    rows = check_rows(read_table(tmp_path / "a.npy", "x"), "x")
    np.testing.assert_array_equal(rows.numpy(), X.astype(dtype).astype(rows.numpy().dtype))


def test_quotes_and_blank_lines_of_csv(tmp_path):
    (tmp_path / "a.csv").write_text('"a","b, c"\n"1","-2.5"\n0.003,4\n5,6\n\n')
    np.testing.assert_array_equal(read_table(tmp_path / "a.csv", "x"), X)


def test_one_array_of_several_is_chosen_by_name(tmp_path):
    np.savez(tmp_path / "a.npz", x=X, score=-X)
    np.testing.assert_array_equal(read_table(f"{tmp_path}/a.npz:score", "x"), -X)
    with pytest.raises(InputError, match=r"x: .*a.npz holds 2 arrays \(x, score\), expected one; choose one as .*:x"):
        read_table(tmp_path / "a.npz", "x")
    with pytest.raises(InputError, match="x: .*a.npz has no array 'y', expected one of x, score"):
        read_table(f"{tmp_path}/a.npz:y", "x")


def test_whole_numbers_and_missing_cells_of_parquet(tmp_path):
    table = pyarrow.table({"a": pyarrow.array([1, None, 3]), "b": pyarrow.array([1.5, 2.5, 3.5])})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    np.testing.assert_array_equal(read_table(tmp_path / "a.parquet", "x"), [[1, 1.5], [np.nan, 2.5], [3, 3.5]])


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"x: reading a.parquet needs pyarrow; .*pip install 'steinscope\[parquet\]'"):
        read_table(tmp_path / "a.parquet", "x")


def write_npy(array):
    return lambda path: np.save(path, array, allow_pickle=True)


def write_npz(**arrays):
    return lambda path: np.savez(path, **arrays)


def cut_short(path):
    np.save(path, np.zeros((100, 100)))
    path.write_bytes(path.read_bytes()[:1000])


def write_text(text):
    return lambda path: path.write_bytes(text.encode("latin-1"))


def write_texts_to_parquet(path):
    pyarrow.parquet.write_table(pyarrow.table({"a": [1.0], "city": ["Oslo"]}), path)


def declare(shape):
    """An .npy file that declares a shape and holds two numbers."""
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text = text.ljust(502) + b"\n"
    return lambda path: path.write_bytes(b"\x93NUMPY\x01\0" + len(text).to_bytes(2, "little") + text + bytes(16))


def zipped(write, member="x.npy"):
    def write_zip(path):
        write(path)
        content = path.read_bytes()
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(member, content)

    return write_zip


def encrypted(path):
    np.savez(path, x=X)
    content = bytearray(path.read_bytes())
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)


def damaged_deflate(path):
    np.savez_compressed(path, x=np.random.default_rng(0).standard_normal((100, 3)))
    content = bytearray(path.read_bytes())
    start = 30 + len("x.npy") + int.from_bytes(content[28:30], "little")
    content[start : start + 20] = b"\xff" * 20
    path.write_bytes(content)


def as_pandas(table, *indices):
    """As pandas writes it, with an index in some columns or nowhere but in the description."""
    described = {"index_columns": [*indices, {"kind": "range", "start": 0, "stop": 3, "step": 1}], "columns": []}
    return table.replace_schema_metadata({b"pandas": json.dumps(described).encode()})


def only_an_index(path):
    pyarrow.parquet.write_table(as_pandas(pyarrow.table({"when": [1.0]}), "when"), path)


def test_row_numbers_of_data_frames_are_no_coordinate(tmp_path):
    numbers = {"__index_level_0__": [5, 6, 7], "a": X[:, 0], "site": ["x", "y", "z"], "b": X[:, 1]}
    table = as_pandas(pyarrow.table(numbers), "__index_level_0__", "site")
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    found = load_table(tmp_path / "a.parquet", "x")
    np.testing.assert_array_equal(found.array, X)
    assert found.names == ("a", "b")
    # Other programs that save it again drop the description and keep the column.
    plain = pyarrow.table({"a": X[:, 0], "b": X[:, 1], "__index_level_0__": [5, 6, 7]})
    pyarrow.parquet.write_table(plain, tmp_path / "b.parquet")
    np.testing.assert_array_equal(read_table(tmp_path / "b.parquet", "x"), X)


def test_a_first_line_of_column_numbers_is_what_the_user_says(tmp_path):
    (tmp_path / "a.csv").write_text("0,1\n3,4.5\n")
    np.testing.assert_array_equal(read_table(tmp_path / "a.csv", "x", header=False), [[0, 1], [3, 4.5]])
    named = load_table(tmp_path / "a.csv", "x", header=True)
    np.testing.assert_array_equal(named.array, [[3, 4.5]])
    assert named.names == ("0", "1")
    # Close to it, but what no data frame writes.
    (tmp_path / "b.csv").write_text("0,1.0\n3,4.5\n")
    assert read_table(tmp_path / "b.csv", "x").shape == (2, 2)


def test_names_of_columns_are_kept(tmp_path):
    (tmp_path / "a.csv").write_text('\n"mass", "size, cm"\n1,2\n')
    assert load_table(tmp_path / "a.csv", "x").names == ("mass", "size, cm")
    np.save(tmp_path / "a.npy", X)
    assert load_table(tmp_path / "a.npy", "x").names is None


def test_two_columns_of_one_name_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("mass,size,mass\n1,2,3\n")
    with pytest.raises(InputError, match=r"^x: two columns of .*a\.csv are called 'mass'$"):
        load_table(tmp_path / "a.csv", "x")


def npz_bomb(path):
    np.savez_compressed(path, x=np.zeros(4_000_000))


def parquet_bomb(path):
    pyarrow.parquet.write_table(pyarrow.table({"a": np.zeros(4_000_000)}), path)


@pytest.mark.parametrize("name, write", [("a.npz", npz_bomb), ("a.parquet", parquet_bomb)])
def test_a_file_that_would_fill_the_memory_is_refused_by_its_header(tmp_path, monkeypatch, name, write):
    write(tmp_path / name)
    assert read_table(tmp_path / name, "x").size == 4_000_000
    monkeypatch.setattr(unpacking, "_FREE_BYTES", 2**20)
    tracemalloc.start()
    with pytest.raises(
        InputError, match=f"x: .*{name} would unpack from [0-9]+ to 320+[0-9]* bytes, more than 200 times"
    ):
        read_table(tmp_path / name, "x")
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


@pytest.mark.parametrize(
    "name, write, message",
    [
        ("a.npy", lambda path: None, "x: there is no file .*a.npy"),
        ("a.npy", lambda path: path.mkdir(), r"x: .*a.npy is a directory, expected a file \(.npy, .npz"),
        ("a.txt", write_text("1"), "x: a.txt has the suffix .txt, expected .* .parquet; call it .csv if its"),
        (
            "a.csv.gz",
            write_text("1"),
            "x: a.csv.gz has the suffix .gz, expected .* .parquet; unpack it, or pipe it: zcat",
        ),
        (
            "a.csv",
            write_text("1;2\n4,5;6\n"),
            "line 2, column 1 holds '4,5', expected .*; decimals are written with a p",
        ),
        ("points", write_text("1"), "x: points has no suffix"),
        ("a.csv", write_text(""), "x: .*a.csv is empty"),
        ("a.npy", write_text("hello"), "x: .*a.npy is not an .npy file"),
        ("a.npz", write_text("hello"), "x: .*a.npz is not an .npz file, or not all of it"),
        ("a.npz", write_text("PK hello"), "x: .*a.npz is not an .npz file, or not all of it"),
        ("a.parquet", write_text("hello"), "x: .*a.parquet is not a whole file"),
        ("a.npy", cut_short, "x: .*a.npy is not a whole file"),
        ("a.npy", write_npy(np.array([{}, None])), "x: .*a.npy holds Python objects, which are not read"),
        ("a.npz", write_npz(x=np.array([{}, None])), "x: .*a.npz holds Python objects, which are not read"),
        ("a.npz", write_npz(), "x: .*a.npz holds 0 arrays, expected one$"),
        ("a.npy", write_npy(np.array(["a"])), "x: .*a.npy holds text, expected an array of real numbers"),
        ("a.npy", write_npy(np.array([1j])), "x: .*a.npy holds complex numbers"),
        ("a.npy", write_npy(np.float64(1)), "x: .*a.npy holds a single number, expected rows of points"),
        ("a.csv", write_text("a,b\n1,2\n3,x\n"), "x: .*a.csv line 3, column 2 holds 'x', expected a number"),
        ("a.csv", write_text("1,2\n3,\n"), "x: .*a.csv line 2, column 2 is empty, expected a number"),
        ("a.csv", write_text("1,,3\n4,5,6\n"), "x: .*a.csv line 1, column 2 is empty, expected a number"),
        ("a.csv", write_text("1,b\n4,5\n"), "x: .*a.csv line 1, column 2 holds 'b', expected a number"),
        (
            "a.csv",
            write_text("1 2\n4 5\n"),
            "x: .*a.csv line 2, column 1 holds '4 5', expected a number; .* not by spaces",
        ),
        ("a.csv", write_text("1,2\n3\n"), "x: .*a.csv line 2 has 1 columns, expected 2"),
        ("a.csv", write_text("a,b\n"), "x: .*a.csv has a line of names and no numbers"),
        ("a.csv", write_text(",a\n0,1\n"), r"x: the first column of .*a.csv has no name.*index=False"),
        ("a.csv", write_text("\xe9\xff,b\n1,2\n"), "x: .*a.csv is not a text file in UTF-8"),
        ("a.csv", write_text("\n \n"), "x: .*a.csv has no numbers"),
        ("a.csv", write_text("a,b,c\n1,2\n"), "x: .*a.csv has 3 names above 2 columns"),
        ("a.csv", write_text("0,1,2\n3,4,5\n"), "x: the first line of .*a.csv, 0,1,2, can be names .* or --no-header"),
        ("a.csv", write_text("0\n3.5\n"), "x: the first line of .*a.csv, 0, can be names of columns or a point"),
        ("a.csv", write_text("\n0;1\n3;4\n"), "x: the first line of .*a.csv, 0,1, can be names of columns"),
        ("a.csv", write_text(",0,1\n0,3,4\n"), r"x: the first column of .*a.csv has no name.*index=False"),
        ("a.csv", write_text("Unnamed: 0,a\n0,3\n"), r"x: the first column of .*a.csv has no name.*index=False"),
        ("a.csv", write_text("a,b\n1," + "9" * 200_000 + "x\n"), "x: .*a.csv cannot be read as numbers .field larger"),
        ("a.csv", write_text("9" * 200_000 + ",1\n1,2\n"), "x: the first line of .*a.csv cannot be read .field larger"),
        ("a.npy", declare("(10**11, 10)"), "x: .*a.npy is not a whole file"),
        ("a.npy", declare("(100000000000, 10)"), "x: .*a.npy .* its header declares 8000000000000 bytes"),
        ("a.npy", declare("(10000000000000000000000, 3)"), "x: .*a.npy .* its header declares 240+ bytes"),
        ("a.npy", declare("(-3, 2)"), r"x: .*a.npy is not a whole file: its header declares the shape \(-3, 2\)"),
        ("a.npy", declare("(3"), "x: .*a.npy is not a whole file"),
        ("a.npy", declare(str((1,) * 65)), "x: .*a.npy is not a whole file .maximum supported dimension"),
        ("a.npy", write_text("\x93NUMPY\x03\0"), "x: .*a.npy is an .npy file of version 3, expected 1 or 2"),
        ("a.npz", zipped(declare("(100000000000, 10)")), "x: .*a.npz .* its header declares 8000000000000 bytes"),
        ("a.npz", zipped(write_text("hello"), "notes.txt"), "x: .*a.npz holds 0 arrays, expected one$"),
        ("a.npz", encrypted, "x: .*a.npz is encrypted, expected an .npz file without a password"),
        ("a.npz", damaged_deflate, "x: .*a.npz is not a whole file .Error -3 while decompressing"),
        ("a.parquet", only_an_index, "x: .*a.parquet has no columns"),
        ("a.parquet", write_texts_to_parquet, "x: column 'city' of .*a.parquet holds string, expected numbers"),
    ],
)
def test_every_way_of_being_wrong_is_one_line(tmp_path, name, write, message):
    write(tmp_path / name)
    with pytest.raises(InputError, match=message) as caught:
        read_table(tmp_path / name, "x")
    assert "\n" not in str(caught.value)
