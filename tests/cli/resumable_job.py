"""Jobs that end in the same bytes however often they are interrupted and wherever they go on: what kill_loop.py and
fault_sweep.py disturb. Standard library only."""

import contextlib
import csv
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import harness  # noqa: E402
import placements  # noqa: E402
from placements import EMULATED, EVICTING, H2O, ON_HOST, PARITY_MODELS, QUANTISED, WINDOW  # noqa: E402

HEADS = ["--policy", harness.REPOSITORY / "tests" / "parity" / "policies" / "heads-8x4.json"]
LLAMA = ["--model", PARITY_MODELS / "llama-grouped-tied"]
NO_POLICY = [flags for flags in QUANTISED if "--kv-policy" not in flags]
TEXTS = [{"text": f"{placements.SENTENCE} Then {number} more came."} for number in range(20)] + [{"text": 5}]
REQUESTS = [*placements.ragged_requests(24, 40, 20), {"prompt": 5}]
# Columns of a sweep's table that hold no time.
LASTING_COLUMNS = ("status", "gen-len", "kv-policy", "num_requests", "generated_tokens", "fingerprint")


class FileJob:
    """`generate` or `score`. `flags` decide the bytes, `places` do not."""

    def __init__(self, name, verb, records, flags, places):
        self.name, self.verb, self.records, self.flags, self.places = name, verb, records, flags, places

    def prepare(self, folder):
        harness.write_jsonl(folder / "in.jsonl", self.records)
        (folder / "offload").mkdir()

    def words(self, folder, places):
        return [self.verb, *self.flags, "--seed", 3, "--input", folder / "in.jsonl", "--output",
                folder / "out.jsonl", "--quiet", "--offload-dir", folder / "offload", *places]

    def result(self, folder):
        return (folder / "out.jsonl").read_bytes()

    def left(self, folder):
        """Names of files that a finished run must not leave behind."""
        kept = {folder / "in.jsonl", folder / "out.jsonl", folder / "offload"}
        found = [path for path in (*folder.iterdir(), *(folder / "offload").iterdir()) if path not in kept]
        return [path.name for path in found if not (path.name.startswith("spillway-") and path.name.endswith(".store"))]


class SweepJob:
    """A sweep, which goes on where it was when it is started again."""

    name, verb, places = "sweep", "sweep", [[]]

    def prepare(self, folder):
        (folder / "offload").mkdir()
        (folder / "grid.toml").write_text(
            f'model = "{PARITY_MODELS / "dynamic"}"\nnum-requests = 4\ngpu-batch-size = 2\nprompt-len = 8\n'
            f'offload-dir = "{folder / "offload"}"\ngen-len = [3, 5]\n[[group]]\nkv-policy = ["full", "h2o"]\n'
            '[[group]]\nkv-policy = "full"\npercent = [0, 0, 0, 0, 0, 100]\n')

    def words(self, folder, _):
        return ["sweep", folder / "grid.toml", "--output", folder / "out", "--quiet"]

    def result(self, folder):
        with open(folder / "out" / "results.csv", newline="", encoding="utf-8") as file:
            return [[row[column] for column in LASTING_COLUMNS] for row in csv.DictReader(file)]

    def left(self, folder):
        points = list((folder / "out" / "points").iterdir())
        extra = ["a point too many"] if len(points) != len(self.result(folder)) else []
        found = [path.name for path in (folder / "offload").iterdir() if not path.name.endswith(".store")]
        return extra + found + [path.name for path in points if path.name.startswith(".")]


JOBS = [
    FileJob("greedy", "generate", REQUESTS, [], ON_HOST),
    FileJob("sampled", "generate", REQUESTS, ["--temperature", 0.9, "--top-p", 0.9, "--logprobs", 2], ON_HOST),
    FileJob("Llama", "generate", REQUESTS, LLAMA, ON_HOST),
    FileJob("H2O", "generate", REQUESTS, [*H2O, "--temperature", 0.7], EVICTING),
    FileJob("budgets per KV head", "generate", REQUESTS, [*HEADS, "--temperature", 0.7], EVICTING),
    FileJob("window", "generate", REQUESTS, [*LLAMA, *WINDOW], EVICTING),
    FileJob("KV of 8 bits", "generate", REQUESTS, ["--kv-bits", 8], ON_HOST),
    FileJob("H2O with KV of 8 bits", "generate", REQUESTS, [*H2O, "--kv-bits", 8], EVICTING),
    FileJob("weights of 8 bits", "generate", REQUESTS, ["--weight-bits", 8], NO_POLICY),
    FileJob("weights of 4 bits", "generate", REQUESTS, [*LLAMA, "--weight-bits", 4, "--temperature", 1], NO_POLICY),
    FileJob("score", "score", TEXTS, [], ON_HOST),
    SweepJob(),
]


class Undisturbed:
    """What a job gives where nothing disturbs it: exit status, warnings, result, seconds."""

    def __init__(self, binary, job):
        with job_folder(job) as folder:
            began = time.monotonic()
            run = harness.run(binary, job.words(folder, job.places[0]), env=environment(folder))
            self.seconds = time.monotonic() - began
            self.status = run.status
            self.num_warnings = run.stderr.count(b"warning")
            if run.status not in (0, 21):
                sys.exit(f"{job.name}: exit {run.status}: {run.stderr.decode(errors='replace')}")
            self.result = job.result(folder)
            left = job.left(folder)
            if left:
                sys.exit(f"{job.name}: an undisturbed run leaves {left}")


def environment(folder):
    """Variables of a run: whatever it puts into a temporary folder is looked for."""
    return {"TMPDIR": str(folder / "offload")}


@contextlib.contextmanager
def job_folder(job):
    with tempfile.TemporaryDirectory(prefix="spillway-job-") as name:
        folder = pathlib.Path(name).resolve()
        job.prepare(folder)
        yield folder


def place_of(job, rng):
    """A placement and a number of threads."""
    flags = list(rng.choice(job.places))
    if "--threads" not in flags and isinstance(job, FileJob):
        flags += ["--threads", rng.choice([1, 2, 3])]
    return flags


