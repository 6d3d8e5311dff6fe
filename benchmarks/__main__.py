"""`python -m benchmarks [NAME ...]` runs all benchmarks, or those named, and writes what it printed as JSON."""

import sys
from importlib import import_module

from benchmarks.records import DIRECTORY, machine_facts, write_record
from benchmarks.timing import table_text

NAMES = ("critic", "estimate", "gof", "training")


def main(names):
    unknown = set(names) - set(NAMES)
    if unknown:
        sys.exit(f"benchmarks: expected some of {', '.join(NAMES)}, got {', '.join(sorted(unknown))}")
    facts = machine_facts()
    print(", ".join(f"{name} {value}" for name, value in facts.items()))
    tables = []
    for name in names or NAMES:
        for table in import_module(f"benchmarks.{name}").run():
            print(f"\n{table.title} (goal: {table.goal})\n\n{table_text(table.rows)}", flush=True)
            tables.append(table)
    print(f"\nwritten to {write_record(facts, tables, DIRECTORY)}")


if __name__ == "__main__":
    main(sys.argv[1:])
