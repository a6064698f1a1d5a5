"""`spillway score` against the golden values of the float32 reference (make_score_golden.py), and tokens told one a pass
against one pass over all. Standard library only.

  python3 score_parity_test.py path/to/spillway [golden name ...]
"""

import json
import pathlib
import re
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cli"))

import harness

TEXT = harness.REPOSITORY / "examples" / "heldout_tales.txt"
FORCED_TOLERANCE = 1e-3
PERPLEXITY_TOLERANCE = 0.002  # of it
# An fp16 KV cache alone moves improbable tokens (a logprob of -9 in random texts) a little over the tolerance.
MAX_SHARE_OVER_TOLERANCE = 0.002


def run(binary, model, words):
    result = harness.run(binary, ["score", "--model", model, "--quiet", *words])
    assert result.status == 0, f"exit {result.status}: {result.stderr.decode(errors='replace')}"
    return result


def score(binary, model, requests, *flags):
    with tempfile.TemporaryDirectory() as folder:
        source = harness.write_jsonl(pathlib.Path(folder) / "in.jsonl", requests)
        lines = [json.loads(line) for line in run(binary, model, ["--input", source, *flags]).stdout.splitlines()]
    assert len(lines) == len(requests), f"{len(lines)} lines for {len(requests)} requests"
    return lines


def errors(expected, found):
    """Differences of two lists of log-probabilities with nulls in the same places; infinity when they are not of one shape."""
    if [value is None for value in expected] != [value is None for value in found]:
        return [float("inf")]
    return [abs(a - b) for a, b in zip(expected, found) if a is not None]


def line_faults(row, line):
    """Faults of a line beside its log-probabilities."""
    faults = []
    if line["greedy_match"] != row["greedy"] and not row["near_tie"]:
        faults.append(f"greedy_match {line['greedy_match']}")
    scored = [value for value in line["token_logprobs"] if value is not None]
    if line["num_tokens"] != len(scored) or abs(line["logprob_sum"] - sum(scored)) > 1e-6 * max(1.0, len(scored)):
        faults.append(f"sum {line['logprob_sum']} of {line['num_tokens']} tokens, expected {sum(scored)} of {len(scored)}")
    return faults


def tolerance_faults(found, tolerance):
    over = sum(error > tolerance for error in found)
    if max(found) <= 2 * tolerance and over <= MAX_SHARE_OVER_TOLERANCE * len(found):
        return []
    return [f"{over} of {len(found)} logprobs are off by more than {tolerance}, the worst by {max(found):.5f}"]


def check_rows(binary, model, golden, forced):
    requests = [row["request"] for row in golden["rows"]]
    lines = score(binary, model, requests)
    all_errors, faults = [], []
    for index, (row, line) in enumerate(zip(golden["rows"], lines)):
        all_errors += errors(row["logprobs"], line["token_logprobs"])
        faults += [f"row {index} {json.dumps(row['request'])[:80]}: {fault}" for fault in line_faults(row, line)]
    faults += tolerance_faults(all_errors, golden["logprob_tolerance"])
    worst_forced = 0.0
    for prefill in forced:
        told = score(binary, model, requests, "--prefill", prefill)
        for index, (line, other) in enumerate(zip(lines, told)):
            error = max(errors(line["token_logprobs"], other["token_logprobs"]), default=0.0)
            worst_forced = max(worst_forced, error)
            if error > FORCED_TOLERANCE:
                faults.append(f"row {index}: --prefill {prefill} differs by {error:.5f} from one pass")
    return max(all_errors), worst_forced, faults


def check_perplexity(binary, model, case):
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "text.txt"
        text.write_text(TEXT.read_text(encoding="utf-8")[: case["characters"]], encoding="utf-8")
        report = pathlib.Path(folder) / "r.json"
        words = ["--perplexity", text, "--window", case["window"], "--stride", case["stride"], "--report", report]
        result = run(binary, model, words + (["--start-each-window"] if case["start_each_window"] else []))
        reported = json.loads(report.read_text())["score"]
    printed = re.fullmatch(rb"perplexity (\d+\.\d\d) \((\d+) tokens\)\n", result.stdout)
    name = f"{case['characters']} characters in windows of {case['window']} every {case['stride']}"
    if printed is None:
        return [f"{name}: printed {result.stdout!r}"]
    faults = []
    if not int(printed[2]) == reported["num_tokens"] == case["num_tokens"]:
        faults.append(f"{name}: {printed[2]} tokens, {reported['num_tokens']} in the report, expected {case['num_tokens']}")
    for value, slack in ((float(printed[1]), 0.005), (reported["perplexity"], 0.0)):
        if abs(value - case["perplexity"]) > PERPLEXITY_TOLERANCE * case["perplexity"] + slack:
            faults.append(f"{name}: {value}, expected {case['perplexity']}")
    return faults


def check(binary, path):
    golden = json.loads(path.read_text(encoding="utf-8"))
    model = HERE.parents[1] / golden["model"]
    error, forced_error, faults = check_rows(binary, model, golden, [1, 7])
    for case in golden["perplexities"]:
        faults += check_perplexity(binary, model, case)
    verdict = f"FAILED ({len(faults)})" if faults else "ok"
    print(f"{path.stem:<28} {len(golden['rows']):>4} {error:>9.5f} {forced_error:>9.5f}  {verdict}", flush=True)
    return faults


def main():
    binary, names = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    paths = sorted(path for path in (HERE / "golden_scores").glob("*.json") if not names or path.stem in names)
    if not paths:
        sys.exit(f"no golden file is called {' or '.join(names)}")
    print(f"{'model':<28} {'rows':>4} {'logprob':>9} {'told':>9}")
    faults = [f"{path.stem}, {fault}" for path in paths for fault in check(binary, path)]
    for fault in faults[:40]:
        print(fault)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
