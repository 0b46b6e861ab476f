"""Timing on a noisy machine: interleaved, repeated, medians."""

import statistics
import time


def interleaved_medians(functions, repeats, warmup=2, untimed=0):
    """Times functions in turn, so that a slow minute falls on all of them.

    Args:
        functions: Dict of name to function without arguments, which must
            return when the work is done.
        repeats: Timed calls of each.
        warmup: Untimed calls of each before.
        untimed: Untimed calls before each timed one, for functions that push
            each other out of a cache that each has for itself in use.

    Returns:
        Dict of name to median seconds.
    """
    seconds = {name: [] for name in functions}
    for turn in range(warmup + repeats):
        for name, function in functions.items():
            for _ in range(untimed):
                function()
            start = time.perf_counter()
            function()
            if turn >= warmup:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}
