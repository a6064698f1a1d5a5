"""Rate of the disk without Spillway. Standard library only."""

import concurrent.futures
import mmap
import os
import time

READ_BYTES = 2 << 20
SECONDS = 4.0
LOOPS = (1, 2, 4)


def read_in_turn(path, first, step):
    """Bytes that a loop of O_DIRECT reads of every step-th run of the file brings in SECONDS."""
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    buffer = mmap.mmap(-1, READ_BYTES)
    size = os.fstat(file).st_size // READ_BYTES
    at, total, begin = first, 0, time.perf_counter()
    while time.perf_counter() - begin < SECONDS:
        total += os.preadv(file, [buffer], at % size * READ_BYTES)
        at += step
    os.close(file)
    return total


def read_rate(path):
    """Bytes per second of plain O_DIRECT reads of a file: the best of one, two and four loops at a time."""
    best = 0.0
    for loops in LOOPS:
        with concurrent.futures.ThreadPoolExecutor(loops) as pool:
            begin = time.perf_counter()
            parts = pool.map(lambda first: read_in_turn(path, first, loops), range(loops))
            best = max(best, sum(parts) / (time.perf_counter() - begin))
    return best
