"""Times generating data, and measures the memory.

    python -m experiments.benchmarks.generation --train_examples=2000000

Runs `prepare_data` in a temporary folder, and reads from `/proc`, while it
runs, how much memory each of its processes ever had resident.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from absl import flags

from tpt_keras.errors import UsageError
from tpt_keras.errors import command

from .. import _cli

FLAGS = flags.FLAGS

flags.DEFINE_list("modules", ["arithmetic__add_or_sub"], "What to generate.")
flags.DEFINE_integer("train_examples", 2_000_000, "Of each module.")
flags.DEFINE_integer("evaluation_examples", 10_000, "Of module and split.")
flags.DEFINE_integer("num_workers", os.cpu_count(), "Number of processes.")
flags.DEFINE_string("output", None, "JSON file for the results.")

_SECONDS_BETWEEN = 0.2


def main():
    with tempfile.TemporaryDirectory() as folder:
        results = measure(
            [
                f"--modules={','.join(FLAGS.modules)}",
                f"--train_examples={FLAGS.train_examples}",
                f"--evaluation_examples={FLAGS.evaluation_examples}",
                f"--num_workers={FLAGS.num_workers}",
                f"--data_dir={folder}",
            ]
        )
    print(
        f"{results['seconds']:.0f} s, of which the processors worked "
        f"{results['cpu_seconds']:.0f} s; most memory: main process "
        f"{results['main_megabytes']:.0f} MB, "
        f"{len(results['other_megabytes'])} others "
        f"{max(results['other_megabytes']):.0f} MB each"
    )
    if FLAGS.output:
        pathlib.Path(FLAGS.output).write_text(json.dumps(results, indent=2))


def measure(arguments):
    """Runs `prepare_data`; seconds and megabytes."""
    start = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", f"{_cli.__package__}.prepare_data", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    peaks = {}
    try:
        while process.poll() is None:
            for pid in (process.pid, *children(process.pid)):
                # The last look at a process counts, for peaks only grow.
                peaks[pid] = peak_megabytes(pid) or peaks.get(pid, 0.0)
            time.sleep(_SECONDS_BETWEEN)
    finally:
        process.kill()
        process.wait()
    if process.returncode:
        raise UsageError(
            "prepare_data ended with an error. Run it alone to see it: "
            f"{command('prepare_data')} {' '.join(arguments)}"
        )
    cpu = os.times()
    return {
        "seconds": time.monotonic() - start,
        "cpu_seconds": cpu.children_user + cpu.children_system,
        "main_megabytes": peaks.pop(process.pid),
        "other_megabytes": sorted(peaks.values(), reverse=True),
    }


def children(pid):
    """Processes that a process started and that are still there."""
    try:
        return [
            int(child)
            for path in pathlib.Path(f"/proc/{pid}/task").glob("*/children")
            for child in path.read_text().split()
        ]
    except OSError:
        return []  # it ended just now


def peak_megabytes(pid):
    """Most memory that a process ever had resident, or None if it ended."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found.group(1)) / 1024 if found else None


if __name__ == "__main__":
    _cli.run(main)
