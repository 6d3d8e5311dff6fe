"""Runs of the benchmarks as JSON files, one for each run, with what is to be known about the machine."""

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path

import torch

import steinscope

DIRECTORY = Path("results/bench")


def machine_facts():
    """What the times depend on."""
    return {
        "steinscope": steinscope.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def processor_name():
    """The name that Linux knows; elsewhere what Python knows, which may be no more than the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def write_record(facts, tables, directory):
    """Write a run to a file that is named by its time, and return its path."""
    now = datetime.now(UTC)
    record = {"time": now.isoformat(timespec="seconds"), "machine": facts, "tables": [vars(table) for table in tables]}
    path = Path(directory) / f"{now:%Y-%m-%dT%H%M%S}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")
    return path


def read_records(directory):
    """All runs, oldest first."""
    return [json.loads(path.read_text()) for path in sorted(Path(directory).glob("*.json"))]
