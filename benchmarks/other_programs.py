"""Share of the processor that other programs took while something was measured. Standard library only."""

import os
import pathlib
import time

QUIET_FRAC = 0.05  # of the processor that other programs may use before a figure counts as disturbed


class OtherPrograms:
    """The share of the processor that went to others since it was made. Their load is not fair to both sides: threads
    that wait for each other at every layer, as the reference's do, lose far more than the share that is taken."""

    def __init__(self):
        self.begin = self.now()

    @staticmethod
    def now():
        """(time, processor seconds of all, of this process and the children it has waited for)."""
        user, nice, system, _, _, irq, softirq, steal = map(int, pathlib.Path("/proc/stat").read_text().split()[1:9])
        everyone = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
        return time.monotonic(), everyone, sum(os.times()[:4])

    def frac(self):
        elapsed, everyone, ours = (after - before for before, after in zip(self.begin, self.now()))
        return max(0.0, everyone - ours) / (elapsed * os.cpu_count())
