"""Read arrays from files: .npy, .npz, .csv and .parquet.

Every way of being wrong is one line that names the argument and the file. What a file declares is compared with its
size before memory is taken for it.
"""

from __future__ import annotations

import csv
import math
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from steinscope.data.unpacking import check_unpacked
from steinscope.errors import InputError, first_line
from steinscope.frames import repeated
from steinscope.support.checks import check_flag

__all__ = ["SUFFIXES", "Table", "is_number", "load_table", "read_table"]

SUFFIXES = (".npy", ".npz", ".csv", ".parquet")
_SUFFIX_HINTS = {
    **dict.fromkeys(
        (".dat", ".tab", ".tsv", ".txt"), "; call it .csv if its columns are separated by commas, semicolons or tabs"
    ),
    ".gz": "; unpack it, or pipe it: zcat FILE | steinscope test -",
}
# Larger .npy files stay on the disk, and their rows are read when they are needed.
_MEMORY_BYTES = 2**28
_LONGEST_LINE = 2**26
# What data frames call the column of row numbers where it has no name of its own.
_INDEX_NAME = re.compile(r"Unnamed: 0|__index_level_[0-9]+__")


@dataclass(frozen=True)
class Table:
    """Rows of numbers, and the names of their columns where the file has them.

    Arguments:
        array: The numbers. Of a large .npy file it is a memmap, of which only the rows in use are in memory.
        names: The names of the columns, or None.
    """

    array: np.ndarray
    names: tuple[str, ...] | None = None


def read_table(source: str | Path, name: str, *, header: bool | None = None) -> np.ndarray:
    """The array in a file; see `load_table`.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "points.csv"
        >>> _ = path.write_text("a,b\\n1,2\\n3,4\\n")
        >>> read_table(path, "x").tolist()
        [[1.0, 2.0], [3.0, 4.0]]
    """
    return load_table(source, name, header=header).array


def load_table(source: str | Path, name: str, *, header: bool | None = None) -> Table:
    """The array in a file, with the names of its columns. Row numbers that a data frame has saved are left out.

    Arguments:
        source: The path of the file; for an .npz file with several arrays `file.npz:array`.
        name: What the user calls it, for messages.
        header: Whether the first line of a .csv file holds names; by default it does if none of them is a number.
    """
    if header is not None:
        check_flag("header", header)
    path, member = _split_member(str(source))
    if not path.exists():
        raise InputError(name, f"there is no file {path}")
    if path.is_dir():
        raise InputError(name, f"{path} is a directory, expected a file ({', '.join(SUFFIXES)})")
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        came = f"the suffix {path.suffix}" if path.suffix else "no suffix"
        hint = _SUFFIX_HINTS.get(suffix, "")
        raise InputError(name, f"{path.name} has {came}, expected one of {', '.join(SUFFIXES)}{hint}")
    if path.stat().st_size == 0:
        raise InputError(name, f"{path} is empty")
    try:
        if suffix == ".npy":
            table = Table(_read_npy(path, name))
        elif suffix == ".npz":
            table = Table(_read_npz(path, member, name))
        elif suffix == ".csv":
            table = _read_csv(path, name, header)
        else:
            table = _read_parquet(path, name)
    except InputError:
        raise
    except OSError as error:
        raise InputError(name, f"cannot read {path}: {error.strerror or first_line(error)}") from None
    except Exception as error:
        # The readers raise nearly anything where the bytes are not what they expect.
        raise InputError(name, f"{path} {_problem(error)}") from None
    array = table.array
    if table.names is not None and (twice := repeated(table.names)) is not None:
        raise InputError(name, f"two columns of {path} are called {twice!r}")
    if array.dtype.kind not in "fiub":
        raise InputError(name, f"{path} holds {_kind(array)}, expected an array of real numbers")
    if array.ndim == 0:
        raise InputError(name, f"{path} holds a single number, expected rows of points")
    return table if isinstance(array, np.memmap) else Table(_plain(array), table.names)


def _plain(array: np.ndarray) -> np.ndarray:
    """In the byte order of this machine, and in at most double precision, as torch wants it."""
    dtype = array.dtype.newbyteorder("=")
    return array.astype(np.float64 if dtype.kind == "f" and dtype.itemsize > 8 else dtype, copy=False)


def _split_member(source: str) -> tuple[Path, str | None]:
    path, colon, member = source.rpartition(":")
    if colon and path.lower().endswith(".npz"):
        return Path(path), member
    return Path(source), None


def _problem(error: Exception) -> str:
    if "allow_pickle" in str(error) or "objects" in str(error).lower():
        return "holds Python objects, which are not read; expected an array of numbers"
    return f"is not a whole file ({first_line(error)})"


def _read_npy(path: Path, name: str) -> np.ndarray:
    with path.open("rb") as file:
        declared = _declared_bytes(file, path, name)
        if declared > path.stat().st_size - file.tell():
            raise InputError(name, f"{path} is not a whole file: its header declares {declared} bytes of numbers")
    return np.load(path, mmap_mode="r" if declared > _MEMORY_BYTES else None, allow_pickle=False)


def _declared_bytes(file: Any, path: Path, name: str) -> int:
    """How many bytes of numbers the header of an array declares. The file is then behind its header."""
    # NumPy takes a file with another beginning for a pickle, and says so in words that mislead.
    start = file.read(8)
    if start[:6] != b"\x93NUMPY":
        raise InputError(name, f"{path} is not an .npy file")
    read_header = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}.get(start[6])
    if read_header is None:
        raise InputError(name, f"{path} is an .npy file of version {start[6]}, expected 1 or 2")
    shape, _, dtype = read_header(file)
    if min(shape, default=0) < 0:
        raise InputError(name, f"{path} is not a whole file: its header declares the shape {shape}")
    return math.prod(shape) * dtype.itemsize


def _read_npz(path: Path, member: str | None, name: str) -> np.ndarray:
    if not zipfile.is_zipfile(path):
        raise InputError(name, f"{path} is not an .npz file, or not all of it")
    with zipfile.ZipFile(path) as archive:
        arrays = {
            info.filename.removesuffix(".npy"): info for info in archive.infolist() if info.filename.endswith(".npy")
        }
        names = ", ".join(arrays)
        if member is None and len(arrays) != 1:
            choose = (
                f" ({names}), expected one; choose one as {path}:{next(iter(arrays))}" if arrays else ", expected one"
            )
            raise InputError(name, f"{path} holds {len(arrays)} arrays{choose}")
        if member is not None and member not in arrays:
            raise InputError(name, f"{path} has no array {member!r}, expected one of {names}")
        info = arrays[member or next(iter(arrays))]
        if info.flag_bits & 1:
            raise InputError(name, f"{path} is encrypted, expected an .npz file without a password")
        check_unpacked(name, path, unpacked=info.file_size, packed=info.compress_size)
        with archive.open(info) as file:
            declared = _declared_bytes(file, path, name)
            if declared > info.file_size:
                raise InputError(name, f"{path} is not a whole file: its header declares {declared} bytes of numbers")
        with archive.open(info) as file:
            return np.lib.format.read_array(file, allow_pickle=False)


def _read_csv(path: Path, name: str, header: bool | None) -> Table:
    """Numbers, with or without a line of names above them, separated by commas, semicolons or tabs."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            line, skipped = file.readline(_LONGEST_LINE), 0
            while line and not line.strip():
                line, skipped = file.readline(_LONGEST_LINE), skipped + 1
            has_more = any(row.strip() for row in file)
    except UnicodeDecodeError:
        raise InputError(name, f"{path} is not a text file in UTF-8") from None
    if len(line) == _LONGEST_LINE:
        raise InputError(name, f"the first line of {path} has more than {_LONGEST_LINE} characters")
    delimiter = next((mark for mark in (",", ";", "\t") if mark in line), ",")
    try:
        first = [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])]
    except csv.Error as error:
        raise InputError(name, f"the first line of {path} cannot be read ({first_line(error)})") from None
    has_header = _is_header(first, header, path, name)
    if not line:
        raise InputError(name, f"{path} has no numbers")
    if has_header and not has_more:
        raise InputError(name, f"{path} has a line of names and no numbers")
    try:
        array = np.loadtxt(
            path,
            delimiter=delimiter,
            skiprows=skipped + has_header,
            ndmin=2,
            comments=None,
            quotechar='"',
            encoding="utf-8-sig",
        )
    except (ValueError, UnicodeDecodeError) as error:
        raise InputError(name, f"{path} {_csv_problem(path, delimiter, skipped + has_header, error)}") from None
    if has_header and len(first) != array.shape[1]:
        raise InputError(name, f"{path} has {len(first)} names above {array.shape[1]} columns")
    return Table(array, tuple(first) if has_header else None)


def _is_header(first: list[str], header: bool | None, path: Path, name: str) -> bool:
    """Whether the cells of the first line are names. Refuses what could as well be a point, and row numbers."""
    labels = [str(number) for number in range(len(first))]
    # A line with some numbers is no line of names: one with a missing value must not be passed over.
    are_names = bool(first) and not any(map(is_number, first))
    are_labels = first[1:] == labels[:-1]
    is_index = len(first) > 1 and (not first[0] or _INDEX_NAME.fullmatch(first[0]) is not None)
    if is_index and header is not False and (are_names or are_labels):
        raise InputError(
            name,
            f"the first column of {path} has no name, so it seems to hold row numbers; "
            "write the file without them (in pandas: index=False)",
        )
    if header is None and first and first == labels:
        raise InputError(
            name,
            f"the first line of {path}, {_shortened(','.join(first))}, can be names of columns or a point; "
            "say which by header=True or False, on the command line --header or --no-header",
        )
    return are_names if header is None else header


def _csv_problem(path: Path, delimiter: str, skipped: int, error: Exception) -> str:
    """Which cell is wrong. The file is read again, slowly, because the fast reader does not say."""
    try:
        return _wrong_cell(path, delimiter, skipped) or f"cannot be read as numbers ({first_line(error)})"
    except csv.Error as too_long:
        return f"cannot be read as numbers ({first_line(too_long)})"


def _wrong_cell(path: Path, delimiter: str, skipped: int) -> str | None:
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        reader = csv.reader(file, delimiter=delimiter)
        width = None
        for row in reader:
            if not row or reader.line_num <= skipped:
                continue
            width = len(row) if width is None else width
            if len(row) != width:
                return f"line {reader.line_num} has {len(row)} columns, expected {width} as in the lines before"
            for column, cell in enumerate(row, start=1):
                if not is_number(cell):
                    came = f"holds {_shortened(cell)!r}" if cell.strip() else "is empty"
                    return f"line {reader.line_num}, column {column} {came}, expected a number{_cell_hint(cell)}"
    return None


def _cell_hint(cell: str) -> str:
    """What to change where numbers are written in another way."""
    if len(cell.split()) > 1 and all(map(is_number, cell.split())):
        return "; columns are separated by commas, semicolons or tabs, not by spaces"
    return "; decimals are written with a point" if is_number(cell.replace(",", ".")) else ""


def _read_parquet(path: Path, name: str) -> Table:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise InputError(
            name, f"reading {path.name} needs pyarrow; install it by: pip install 'steinscope[parquet]'"
        ) from None
    with pyarrow.parquet.ParquetFile(path) as file:
        schema = file.schema_arrow
        described = schema.pandas_metadata or {}
        indices = [name for name in described.get("index_columns", ()) if isinstance(name, str)]
        columns = {
            number: column
            for number, column in enumerate(schema)
            if column.name not in indices and not _INDEX_NAME.fullmatch(column.name)
        }
        if not columns:
            raise InputError(name, f"{path} has no columns")
        types = pyarrow.types
        for column in columns.values():
            if not (types.is_integer(column.type) or types.is_floating(column.type) or types.is_boolean(column.type)):
                raise InputError(name, f"column {column.name!r} of {path} holds {column.type}, expected numbers")
        cells = file.metadata.num_rows * len(schema)
        check_unpacked(name, path, unpacked=8 * cells, packed=path.stat().st_size)
        table = file.read()
    names = tuple(column.name for column in columns.values())
    arrays = [table.column(number).to_numpy() for number in columns]
    # Without a value a cell is NaN here, and the check of the points names its row.
    array = np.stack([np.asarray(column, dtype=np.result_type(column, np.float32)) for column in arrays], 1)
    return Table(array, names)


def is_number(cell: str) -> bool:
    """Whether the text of a cell is a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _kind(array: np.ndarray) -> str:
    kinds: dict[str, Any] = {"c": "complex numbers", "U": "text", "S": "text", "M": "dates", "V": "records"}
    return kinds.get(array.dtype.kind, f"values of type {array.dtype}")


def _shortened(text: str, length: int = 30) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
