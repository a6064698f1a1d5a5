"""Kills runs at random times and lets them go on elsewhere, until they are done: the bytes are those of an undisturbed run,
and no file is left. Jobs: resumable_job.py. Standard library only.

  python3 kill_loop.py path/to/spillway [KILLS [SEED]]

Ends in one line of counts, and in exit 1 where a run ended other than by the kill or its end, had other bytes, or left a
file. A seed chooses the same jobs, placements and times; where a run is at such a time, the machine says.
"""

import os
import pathlib
import random
import subprocess
import sys
import time

import harness
from resumable_job import JOBS, Undisturbed, environment, job_folder, place_of

MOST_KILLS = 12  # of one job, before it may run to its end


class Counts:
    kills = runs = finished = mismatches = failures = left = 0

    def line(self):
        return (f"{self.kills} kills, {self.runs} runs, {self.finished} finished: {self.mismatches} mismatches, "
                f"{self.failures} failures, {self.left} files left")

    def is_clean(self):
        return self.mismatches + self.failures + self.left == 0


def listing(folder):
    """Names of all files, which change when a run begins, commits, converts or ends."""
    names = []
    for path, folders, files in os.walk(folder):
        names += [*folders, *files] + [path]
    return names


def wait_for_changes(run, folder, number, until):
    """Returns soon after the files of the folder changed so many times."""
    before = listing(folder)
    while number > 0 and run.poll() is None and time.monotonic() < until:
        time.sleep(0.0003)
        now = listing(folder)
        if now != before:
            before, number = now, number - 1


def wait_before_kill(run, folder, undisturbed, rng):
    """At any time in the run, or at a change of its files: there is where a kill can do harm."""
    longest = 1.2 * undisturbed.seconds
    if rng.random() < 0.5:
        wait_for_changes(run, folder, rng.randint(1, 6), time.monotonic() + longest)
        time.sleep(rng.choice([0, 0, 0.0005, 0.002]))
    else:
        try:
            run.wait(rng.uniform(0, longest))
        except subprocess.TimeoutExpired:
            pass


def wait_for_children(folder):
    """A sweep's point ends with its sweep, a moment later."""
    deadline = time.monotonic() + 30 * harness.SLOWDOWN
    while time.monotonic() < deadline:
        if not any(str(folder).encode() in command for command in commands()):
            return
        time.sleep(0.002)


def commands():
    for process in pathlib.Path("/proc").iterdir():
        try:
            if process.name.isdigit() and int(process.name) != os.getpid():
                yield (process / "cmdline").read_bytes()
        except OSError:
            continue


def start(binary, words, folder):
    errors = open(folder.parent / f"{folder.name}.stderr", "wb")
    with errors:
        return subprocess.Popen([str(binary), *map(str, words)], stdout=subprocess.DEVNULL, stderr=errors, cwd=folder,
                                env=harness.clean_environment(environment(folder)))


def run_until_done(binary, job, undisturbed, rng, counts):
    """One job, killed and started again until a run ends by itself; a description of what is wrong, or None."""
    with job_folder(job) as folder:
        errors = folder.parent / f"{folder.name}.stderr"
        try:
            words, status = kill_and_resume(binary, job, folder, undisturbed, rng, counts)
            if status != undisturbed.status:
                counts.failures += 1
                problem = f"exit {status}: {errors.read_text(errors='replace').strip()}"
            elif job.result(folder) != undisturbed.result:
                counts.mismatches += 1
                problem = "other bytes than those of an undisturbed run"
            else:
                counts.finished += 1
                left = job.left(folder)
                counts.left += len(left)
                problem = f"files left: {left}" if left else None
            return f"{job.name}: {problem}; last run: {' '.join(map(str, words))}" if problem else None
        finally:
            errors.unlink(missing_ok=True)


def kill_and_resume(binary, job, folder, undisturbed, rng, counts):
    """Words and exit status of the run that ended by itself."""
    for attempt in range(MOST_KILLS + 1):
        words = job.words(folder, place_of(job, rng))
        run = start(binary, words, folder)
        counts.runs += 1
        if attempt < MOST_KILLS:
            wait_before_kill(run, folder, undisturbed, rng)
        else:
            run.wait(harness.TIMEOUT_S)
        run.kill()
        status = run.wait()
        if job.verb == "sweep":
            wait_for_children(folder)
        if status != -9:
            break
        counts.kills += 1
    return words, status


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    wanted = int(sys.argv[2]) if len(sys.argv) > 2 else 50
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    undisturbed = {job.name: Undisturbed(binary, job) for job in JOBS}
    counts = Counts()
    told = 0
    while counts.kills < wanted:
        for job in JOBS:
            problem = run_until_done(binary, job, undisturbed[job.name], rng, counts)
            if problem:
                print(f"FAILED {problem}", flush=True)
            if counts.kills >= wanted:
                break
        if counts.kills >= told + 500:
            told = counts.kills
            print(counts.line(), flush=True)
    print(counts.line())
    sys.exit(0 if counts.is_clean() else 1)


if __name__ == "__main__":
    main()
