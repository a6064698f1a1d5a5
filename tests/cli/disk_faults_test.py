"""A disk that fails is never silent: each fault ends in its exit code and one line, or in the same bytes as without it.
Standard library only.

  python3 disk_faults_test.py path/to/spillway
"""

import json
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import harness
import placements

# Placements with a part on disk: the model is small, so that every run makes few and short requests.
WEIGHTS = ["--percent", 0, 0, 0, 100, 0, 100, "--gpu-batch-size", 3, "--num-gpu-batches", 2]
KV = ["--percent", 0, 100, 0, 0, 0, 100, "--gpu-batch-size", 3, "--num-gpu-batches", 2]
HIDDEN = ["--percent", 0, 100, 0, 100, 0, 0, "--gpu-batch-size", 3, "--num-gpu-batches", 2]
GPU = ["--emulate-gpu", "1GiB"]
PLAIN = ()
FOUR_BITS = ("--weight-bits", 4)
H2O = ("--kv-policy", "h2o", "--kv-budget", "20%")
REPORT = "report.json"
SAME = 0
REREAD = "the same after one read was repeated"
WARNED = "the same, and a warning"
REPAIRED = "the same after weights were made again"
BEGUN_AGAIN = "the same after the rows that ran began again"
MENDED = (REREAD, WARNED, REPAIRED, BEGUN_AGAIN)
FAILED = 40
CORRUPT = 41
FAILED_EACH_TIME = (40, "after the rows began again twice")
CORRUPT_EACH_TIME = (41, "after the rows began again twice")

CASES = [
    # what is on disk, faults, backend, exit status
    (WEIGHTS, "read:error=5@3/1", None, FAILED),
    (WEIGHTS, "read:error=5@40/1", "threads", FAILED),
    (KV, "read:error=5@9/1", None, FAILED_EACH_TIME),
    (KV, "write:error=5@9", None, FAILED),
    (KV, "write:error=5@9", "threads", FAILED),
    (HIDDEN, "write:error=5@20", None, FAILED),
    (KV + GPU, "write:error=5@9", None, FAILED),
    (HIDDEN + GPU, "read:error=5@9/1", None, FAILED_EACH_TIME),
    # a read that fails once is done again; one that is refused for its alignment goes through the page cache
    (WEIGHTS, "read:error=5@3", None, WARNED),
    (KV, "read:error=5@9", None, WARNED),
    (WEIGHTS, "read:error=22@3", None, WARNED),
    # what comes back wrong once is read again
    (WEIGHTS, "read:flip=12345@7", None, REREAD),
    (WEIGHTS, "read:zero@7", None, REREAD),
    (KV, "read:flip=999@30", None, REREAD),
    (KV, "read:zero@11", "threads", REREAD),
    (HIDDEN, "read:flip=5@12", None, REREAD),
    (KV + GPU, "read:flip=999@30", None, REREAD),
    (HIDDEN + GPU, "read:misdirected=65536@9", None, REREAD),
    # weights that are wrong on the disk, or each time they are read, are made from the model again
    (WEIGHTS, "read:flip=12345@7/1", None, REPAIRED),
    (WEIGHTS, "read:zero@7/1", "threads", REPAIRED),
    (WEIGHTS + GPU, "read:flip=12345@7/1", None, REPAIRED),
    ([*WEIGHTS, *FOUR_BITS], "read:flip=12345@7/1", None, REPAIRED),
    # what rows had spilled there is computed again, as long as that helps
    (KV, "write:lost@40", None, BEGUN_AGAIN),
    (KV, "write:lost@40", "threads", BEGUN_AGAIN),
    ([*KV, *H2O], "write:lost@40", None, BEGUN_AGAIN),
    # behind 48 writes and reads of prompts the log's: states and tokens next to each other
    ([*KV, *H2O], "write:lost@60", None, BEGUN_AGAIN),
    ([*KV, *H2O], "write:lost@61", None, BEGUN_AGAIN),
    *[([*KV, *H2O], f"read:flip=99@{number}", None, REREAD) for number in range(101, 106)],
    (HIDDEN, "write:lost@30", None, BEGUN_AGAIN),
    (HIDDEN + GPU, "write:lost@30", None, BEGUN_AGAIN),
    (KV, "read:flip=999@30/1", None, CORRUPT_EACH_TIME),
    (KV, "read:zero@11/1", "threads", CORRUPT_EACH_TIME),
    (HIDDEN, "read:flip=5@12/1", None, CORRUPT_EACH_TIME),
    (KV + GPU, "read:flip=999@30/1", None, CORRUPT_EACH_TIME),
    # short transfers, delays and results in any order change nothing
    (WEIGHTS, "read:short=4096@0/3", None, SAME),
    (KV, "read:short=4096@0/2,write:short=4096@1/2", None, SAME),
    (KV, "read:delay=2000@0/7,write:delay=3000@0/5", None, SAME),
    (WEIGHTS, "shuffle=7", None, SAME),
    (KV, "shuffle=8", None, SAME),
    (HIDDEN, "shuffle=9", "threads", SAME),
    (KV + GPU, "shuffle=10,write:delay=2000@0/4", None, SAME),
    (WEIGHTS, None, "threads", SAME),
    (KV + GPU, None, "threads", SAME),
]


def run(binary, source, folder, flags, faults=None, backend=None, stall_s=None):
    env = {}
    if stall_s:
        env["SPILLWAY_TEST_STALL_S"] = str(stall_s)
    if faults:
        env["SPILLWAY_TEST_DISK_FAULTS"] = faults
    if backend:
        env["SPILLWAY_TEST_DISK_BACKEND"] = backend
    words = ["generate", "--input", source, "--output", "-", "--quiet", "--seed", 3, "--offload-dir", folder]
    words += ["--report", folder / REPORT, *flags]
    return harness.run(binary, words, env=env)


def problem_of_same(result, expected, report, status, num_warnings):
    if result.stdout != expected:
        return "other bytes than without the fault"
    document = json.loads(report.read_text())
    read = document["links"]["disk_read"]
    if read["rereads"] != int(status == REREAD):
        return f"{read['rereads']} repeated reads reported"
    if (read["repaired"] > 0) != (status == REPAIRED):
        return f"{read['repaired']} tiles reported as made again"
    if read["recomputed"] != int(status == BEGUN_AGAIN):
        return f"reported that rows began again {read['recomputed']} times"
    usages = [json.loads(line)["response"]["body"]["usage"] for line in expected.splitlines()]
    for reported, told in (("generated_tokens", "completion_tokens"), ("prompt_tokens", "prompt_tokens")):
        if document["workload"][reported] != sum(usage[told] for usage in usages):
            return f"{document['workload'][reported]} {reported} reported"
    warnings = result.stderr.count(b"spillway: warning: ")
    return None if warnings == num_warnings else f"{warnings} warnings"


def problem_of(result, expected, report, status):
    num_warnings = 2 if isinstance(status, tuple) else 0
    exit_status = status[0] if num_warnings else SAME if status in MENDED else status
    if result.status != exit_status:
        return f"exit {result.status}, expected {exit_status}: {result.stderr.decode(errors='replace')[:300]}"
    if exit_status == SAME:
        return problem_of_same(result, expected, report, status, int(status != SAME))
    lines = result.error_lines()
    if len(lines) != 1 or len(result.stderr.splitlines()) != 1 + num_warnings:
        return f"{len(result.stderr.splitlines())} lines on stderr"
    return None if len(lines[0]) <= 300 else f"{len(lines[0])} characters"


def warns_of_what_came_before_a_failure(binary, source, folder):
    """A disk that gave wrong bytes before it failed has been seen to."""
    result = run(binary, source, folder, KV, "read:flip=9@3,read:error=5@31/1")
    lines = result.stderr.decode().splitlines()
    return result.status == FAILED and len(lines) == 4 and "1 disk read gave other bytes" in lines[2]


def ends_when_the_disk_never_answers(binary, source, folder):
    """docs/reliability.md, "The run"; after three seconds where a user's run has ten minutes. With a machine's rates known,
    what never answers is a read that only measures."""
    measured = [*WEIGHTS, "--machine", harness.REPOSITORY / "examples" / "machines" / "t4.json"]
    for flags, faults in ((KV, "read:delay=900000000@9"), (measured, "read:delay=900000000@0")):
        result = run(binary, source, folder, flags, faults, stall_s=3)
        lines = result.stderr.decode().splitlines()
        if (result.status != 43 or len(lines) != 2 or not lines[0].startswith("spillway: warning: nothing was read")
                or not lines[1].startswith(
                    "spillway: error[E-STALLED]: nothing was read, written or computed for 3 s: 1 request")):
            return False
    return True


def a_disk_that_fails_is_not_measured(binary, source, folder, expected):
    """The run then meets the same disk, and tells."""
    measured = [*WEIGHTS, "--machine", harness.REPOSITORY / "examples" / "machines" / "t4.json"]
    result = run(binary, source, folder, measured, "read:error=5@0")
    return result.status == SAME and result.stdout == expected


def waits_for_a_disk_that_freezes(binary, source, folder, expected):
    """docs/reliability.md, "The disk": told, and nothing lost."""
    result = run(binary, source, folder, KV, "read:delay=2000000@9", stall_s=15)
    return result.status == SAME and result.stdout == expected and b"nothing was read" in result.stderr


def stores_that_are_damaged(binary, source, folder, expected):
    """What is wrong with a store that a run made for itself is put right, in the run and in the store."""
    (store,) = folder.glob("spillway-*.store")
    weights = store / "weights.bin"
    whole = weights.read_bytes()
    for damage in (whole[:70000] + bytes([whole[70000] ^ 4]) + whole[70001:], bytes(len(whole))):
        weights.write_bytes(damage)
        first = run(binary, source, folder, WEIGHTS)
        second = run(binary, source, folder, WEIGHTS)
        lines = first.stderr.decode().splitlines()
        if (first.status, first.stdout) != (SAME, expected) or len(lines) != 1:
            yield f"a damaged store: exit {first.status}, {lines}"
        elif "made from the model again" not in lines[0]:
            yield f"a damaged store: {lines[0]}"
        if (second.status, second.stdout, second.stderr) != (SAME, expected, b""):
            yield f"after a damaged store: exit {second.status}, {second.stderr.decode()}"
        if weights.read_bytes() != whole:
            yield "a damaged store stays damaged"
    weights.write_bytes(bytes(len(whole)))
    weights.chmod(0o400)
    if run(binary, source, folder, WEIGHTS).stdout != expected:
        yield "a damaged store that may not be written is no help"


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    failures = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        source = harness.write_jsonl(folder / "in.jsonl", placements.ragged_requests(14, 40, 20))
        expected = {
            kind: run(binary, source, folder, ["--gpu-batch-size", 3, *kind]).stdout for kind in (PLAIN, FOUR_BITS, H2O)
        }
        for flags, faults, backend, status in CASES:
            result = run(binary, source, folder, flags, faults, backend)
            kind = FOUR_BITS if "--weight-bits" in flags else H2O if "--kv-policy" in flags else PLAIN
            problem = problem_of(result, expected[kind], folder / REPORT, status)
            if problem:
                failures += 1
                print(f"FAILED {faults} {backend or 'auto'} {' '.join(map(str, flags))}: {problem}")
        if not warns_of_what_came_before_a_failure(binary, source, folder):
            failures += 1
            print("FAILED: a repeated read is not told of when the run fails later")
        if not ends_when_the_disk_never_answers(binary, source, folder):
            failures += 1
            print("FAILED: a disk that never answers is not told of, or waited for")
        if not a_disk_that_fails_is_not_measured(binary, source, folder, expected[PLAIN]):
            failures += 1
            print("FAILED: a disk that fails while it is measured costs the run")
        if not waits_for_a_disk_that_freezes(binary, source, folder, expected[PLAIN]):
            failures += 1
            print("FAILED: a disk that freezes for a while is not told of, or costs the run")
        (folder / "off").mkdir()
        run(binary, source, folder / "off", WEIGHTS)
        for problem in stores_that_are_damaged(binary, source, folder / "off", expected[PLAIN]):
            failures += 1
            print(f"FAILED {problem}")
        shutil.rmtree(folder / "off")
        left = sorted(path.name for path in folder.iterdir() if path.name not in ("in.jsonl", REPORT))
        if any(not path.endswith(".store") for path in left):
            failures += 1
            print(f"FAILED: files left behind: {left}")
    print(f"{len(CASES)} faults, {failures} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
