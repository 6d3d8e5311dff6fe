"""`python -m benchmarks.comparison` sets the ratios of the last run beside those of the run before it."""

import sys

from benchmarks.records import DIRECTORY, read_records
from benchmarks.timing import table_text


def ratios(record):
    """The ratios of a run, by table, row and column."""
    found = {}
    for table in record["tables"]:
        for row in table["rows"]:
            label, *columns = row
            for column in columns:
                if "ratio" in column or "/" in column:
                    found[table["title"], f"{label} = {row[label]}", column] = row[column]
    return found


def compare(before, after):
    """Rows for the ratios that both runs have."""
    old, new = ratios(before), ratios(after)
    return [
        {"benchmark": title, "row": row, "column": column, "before": old[key], "now": new[key], "now/before": change}
        for key in new
        if key in old
        for title, row, column in [key]
        for change in [new[key] / old[key]]
    ]


def main():
    records = read_records(DIRECTORY)
    if len(records) < 2:
        sys.exit(f"bench-compare: expected two runs in {DIRECTORY}, found {len(records)}; `make bench` makes one")
    before, after = records[-2:]
    for name in after["machine"]:
        if before["machine"].get(name) != after["machine"][name]:
            print(f"{name}: {before['machine'].get(name)} before, {after['machine'][name]} now")
    rows = compare(before, after)
    if not rows:
        sys.exit("bench-compare: the last two runs have no benchmark in common")
    print(f"{before['time']} before, {after['time']} now\n\n{table_text(rows)}")


if __name__ == "__main__":
    main()
