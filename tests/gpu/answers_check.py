"""On a machine with a GPU: log-probabilities of given tokens beside the CPU's, when texts are read in one pass (prefill) and
when all but a few tokens come one a pass (decode), for every way of storing weights and KV; and the greedy choice of each
text. Writes answers.json. Standard library only.

  python3 answers_check.py path/to/spillway OUT_FOLDER [--quick]
"""

import json
import pathlib
import statistics
import subprocess
import sys

SENTENCES = [
    "Once upon a time there lived in a great forest a poor woodcutter with his two children.",
    "The king had a daughter who was so proud that no suitor was good enough for her.",
    "So the youngest brother set out, and when he had gone a little way he met an old woman.",
    "In the middle of the night the door opened, and in came a little grey man with a lantern.",
]
# How weights and KV are stored, and the largest difference of one token and of the mean: about three times what a GPU in
# software differs by. Activations of a GPU's products are rounded to 16 bits; rounded otherwise, an element of the cache may
# have another code, and H2O may evict another token.
STORAGES = [
    ([], 0.06, 0.006),
    (["--weight-bits", "8"], 0.06, 0.006),
    (["--weight-bits", "4"], 0.06, 0.006),
    (["--kv-bits", "8"], 0.2, 0.01),
    (["--kv-bits", "4"], 1.0, 0.08),
    (["--kv-policy", "h2o", "--kv-budget", "40%"], 1.0, 0.015),
]
SMALL_MODEL = ["--model", pathlib.Path(__file__).resolve().parents[1] / "parity/models/gelu-head80-untied"]
PASSES = {"prefill": [], "decode": ["--prefill", "4"]}


def texts(count):
    """Texts of different lengths, none twice."""
    return ["".join(SENTENCES[(n + k) % len(SENTENCES)] + " " for k in range(1 + n % 4)) + f"It was {n} o'clock."
            for n in range(count)]


def scores(spillway, source, flags):
    command = [str(word) for word in (spillway, "score", "--input", source, "--output", "-", "--quiet", *flags)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def compared(on_gpu, on_cpu):
    """Differences of two runs' log-probabilities."""
    differences = [abs(a - b) for ours, theirs in zip(on_gpu, on_cpu, strict=True)
                   for a, b in zip(ours["token_logprobs"], theirs["token_logprobs"], strict=True)]
    return {"tokens": len(differences), "largest": max(differences), "mean": statistics.fmean(differences),
            "texts": len(on_cpu),
            "greedy_otherwise": sum(a["greedy_match"] != b["greedy_match"] for a, b in zip(on_gpu, on_cpu))}


def main():
    spillway, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    quick = "--quick" in sys.argv[3:]  # for a GPU in software
    model = SMALL_MODEL if quick else []
    source = folder / "texts.jsonl"
    lines = texts(2 if quick else 24)
    source.write_text("".join(json.dumps({"custom_id": str(n), "text": text}) + "\n" for n, text in enumerate(lines)))
    results, num_failed = {}, 0
    for storage, largest, mean in STORAGES[:1] if quick else STORAGES:
        for name, flags in PASSES.items():
            gpu = scores(spillway, source, [*model, "--device", "cuda:0", *storage, *flags])
            cpu = scores(spillway, source, [*model, "--device", "cpu", *storage, *flags])
            what = f"{name}, {' '.join(storage) or '16 bits'}"
            result = results[what] = compared(gpu, cpu)
            agrees = result["largest"] <= largest and result["mean"] <= mean  # false for NaN
            num_failed += not agrees
            print(f"{what}: largest {result['largest']:.2g}, mean {result['mean']:.2g} of {result['tokens']} log-probabilities"
                  f"{'' if agrees else f'; FAILED: at most {largest} and {mean}'}", flush=True)
    (folder / "answers.json").write_text(json.dumps(results, indent=1) + "\n")
    worst = max(results.values(), key=lambda result: result["largest"])
    print(f"{num_failed} of {len(results)} comparisons failed; largest difference {worst['largest']:.2g}")
    sys.exit(1 if num_failed else 0)


if __name__ == "__main__":
    main()
