"""Read arrays from files: .npy, .npz, .csv and .parquet.

Every way of being wrong is one line that names the argument and the file.
"""

from __future__ import annotations

import csv
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from steinscope.errors import InputError

__all__ = ["SUFFIXES", "column_names", "read_table"]

SUFFIXES = (".npy", ".npz", ".csv", ".parquet")
# Larger .npy files stay on the disk, and their rows are read when they are needed.
_MEMORY_BYTES = 2**28


def read_table(source: str | Path, name: str) -> np.ndarray:
    """The array in a file. A large .npy file becomes a memmap, of which only the rows in use are in memory.

    Arguments:
        source: The path of the file; for an .npz file with several arrays `file.npz:array`.
        name: What the user calls it, for messages.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "points.csv"
        >>> _ = path.write_text("a,b\\n1,2\\n3,4\\n")
        >>> read_table(path, "x").tolist()
        [[1.0, 2.0], [3.0, 4.0]]
    """
    path, member = _split_member(str(source))
    if not path.exists():
        raise InputError(name, f"there is no file {path}")
    if path.is_dir():
        raise InputError(name, f"{path} is a directory, expected a file ({', '.join(SUFFIXES)})")
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        came = f"the suffix {path.suffix}" if path.suffix else "no suffix"
        raise InputError(name, f"{path.name} has {came}, expected one of {', '.join(SUFFIXES)}")
    if path.stat().st_size == 0:
        raise InputError(name, f"{path} is empty")
    try:
        if suffix == ".npy":
            array = _read_npy(path, name)
        elif suffix == ".npz":
            array = _read_npz(path, member, name)
        elif suffix == ".csv":
            array = _read_csv(path, name)
        else:
            array = _read_parquet(path, name)
    except OSError as error:
        raise InputError(name, f"cannot read {path}: {error.strerror or error}") from None
    if array.dtype.kind not in "fiub":
        raise InputError(name, f"{path} holds {_kind(array)}, expected an array of real numbers")
    if array.ndim == 0:
        raise InputError(name, f"{path} holds a single number, expected rows of points")
    return array if isinstance(array, np.memmap) else _plain(array)


def column_names(source: str | Path) -> tuple[str, ...] | None:
    """The names of the columns of a file that `read_table` has read; None where it has none.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "points.csv"
        >>> _ = path.write_text("age,income\\n1,2\\n3,4\\n")
        >>> column_names(path)
        ('age', 'income')
    """
    path = _split_member(str(source))[0]
    suffix = path.suffix.lower()
    if suffix == ".csv":
        first, _ = _first_row(path)
        return tuple(cell.strip() for cell in first) if _is_header(first) else None
    if suffix == ".parquet":
        import pyarrow.parquet

        return tuple(pyarrow.parquet.read_schema(path).names)
    return None


def _plain(array: np.ndarray) -> np.ndarray:
    """In the byte order of this machine, and in at most double precision, as torch wants it."""
    dtype = array.dtype.newbyteorder("=")
    return array.astype(np.float64 if dtype.kind == "f" and dtype.itemsize > 8 else dtype, copy=False)


def _split_member(source: str) -> tuple[Path, str | None]:
    path, colon, member = source.rpartition(":")
    if colon and path.lower().endswith(".npz"):
        return Path(path), member
    return Path(source), None


def _read_npy(path: Path, name: str) -> np.ndarray:
    # NumPy takes a file with another beginning for a pickle, and says so in words that mislead.
    with path.open("rb") as file:
        if file.read(6) != b"\x93NUMPY":
            raise InputError(name, f"{path} is not an .npy file")
    try:
        return np.load(path, mmap_mode="r" if path.stat().st_size > _MEMORY_BYTES else None, allow_pickle=False)
    except (ValueError, EOFError, SyntaxError) as error:
        raise InputError(name, f"{path} {_npy_problem(error)}") from None


def _npy_problem(error: Exception) -> str:
    if "allow_pickle" in str(error) or "objects" in str(error).lower():
        return "holds Python objects, which are not read; expected an array of numbers"
    return f"is not a whole file ({_first_line(error)})"


def _read_npz(path: Path, member: str | None, name: str) -> np.ndarray:
    if not zipfile.is_zipfile(path):
        raise InputError(name, f"{path} is not an .npz file, or not all of it")
    try:
        with np.load(path, allow_pickle=False) as archive:
            names = archive.files
            if member is None and len(names) != 1:
                choose = f"; choose one as {path}:{names[0]}" if names else ""
                raise InputError(name, f"{path} holds {len(names)} arrays ({', '.join(names)}), expected one{choose}")
            if member is not None and member not in names:
                raise InputError(name, f"{path} has no array {member!r}, expected one of {', '.join(names)}")
            return archive[member or names[0]]
    except InputError:
        raise
    except (ValueError, EOFError, SyntaxError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(name, f"{path} {_npy_problem(error)}") from None


def _read_csv(path: Path, name: str) -> np.ndarray:
    """Numbers, with or without a line of names above them, separated by commas, semicolons or tabs."""
    try:
        first, delimiter = _first_row(path)
    except UnicodeDecodeError:
        raise InputError(name, f"{path} is not a text file in UTF-8") from None
    has_header = _is_header(first)
    if has_header and len(first) > 1 and not first[0].strip():
        raise InputError(
            name,
            f"the first column of {path} has no name, so it seems to hold row numbers; "
            "write the file without them (in pandas: index=False)",
        )
    try:
        array = np.loadtxt(
            path,
            delimiter=delimiter,
            skiprows=int(has_header),
            ndmin=2,
            comments=None,
            quotechar='"',
            encoding="utf-8-sig",
        )
    except (ValueError, UnicodeDecodeError) as error:
        raise InputError(name, f"{path} {_csv_problem(path, delimiter, has_header, error)}") from None
    if array.size == 0:
        raise InputError(name, f"{path} has a line of names and no numbers")
    return array


def _first_row(path: Path) -> tuple[list[str], str]:
    """The cells of the first line, and what separates them."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        line = file.readline()
    delimiter = next((mark for mark in (",", ";", "\t") if mark in line), ",")
    return next(csv.reader([line], delimiter=delimiter), []), delimiter


def _is_header(cells: list[str]) -> bool:
    """A line with some numbers is no line of names: one with a missing value must not be passed over."""
    return bool(cells) and not any(map(_is_number, cells))


def _csv_problem(path: Path, delimiter: str, has_header: bool, error: Exception) -> str:
    """Which cell is wrong. The file is read again, slowly, because the fast reader does not say."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        reader = csv.reader(file, delimiter=delimiter)
        width = None
        for row in reader:
            if not row or (reader.line_num == 1 and has_header):
                continue
            width = len(row) if width is None else width
            if len(row) != width:
                return f"line {reader.line_num} has {len(row)} columns, expected {width} as in the lines before"
            for column, cell in enumerate(row, start=1):
                if not _is_number(cell):
                    came = f"holds {_shortened(cell)!r}" if cell.strip() else "is empty"
                    return f"line {reader.line_num}, column {column} {came}, expected a number"
    return f"cannot be read as numbers ({_first_line(error)})"


def _read_parquet(path: Path, name: str) -> np.ndarray:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise InputError(
            name, f"reading {path.name} needs pyarrow; install it by: pip install 'steinscope[parquet]'"
        ) from None
    try:
        table = pyarrow.parquet.read_table(path)
    except pyarrow.ArrowException as error:
        raise InputError(name, f"{path} is not a whole file ({_first_line(error)})") from None
    types = pyarrow.types
    for column in table.schema:
        if not (types.is_integer(column.type) or types.is_floating(column.type) or types.is_boolean(column.type)):
            raise InputError(name, f"column {column.name!r} of {path} holds {column.type}, expected numbers")
    if not table.num_columns:
        raise InputError(name, f"{path} has no columns")
    columns = [column.to_numpy() for column in table.columns]
    # Without a value a cell is NaN here, and the check of the points names its row.
    return np.stack([np.asarray(column, dtype=np.result_type(column, np.float32)) for column in columns], 1)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _kind(array: np.ndarray) -> str:
    kinds: dict[str, Any] = {"c": "complex numbers", "U": "text", "S": "text", "M": "dates", "V": "records"}
    return kinds.get(array.dtype.kind, f"values of type {array.dtype}")


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return _shortened(lines[0], 100) if lines else type(error).__name__


def _shortened(text: str, length: int = 30) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
