"""A real model against transformers in float32: greedy tokens of 50 prompts and a perplexity.

real_model_test.py SPILLWAY smollm2|smollm2-gguf|gemma [FOLDER]; FOLDER, or a GGUF file, is what scripts/real_models.sh makes. Says SKIPPED and exits 77
where it is not there. The expected values are those of golden/ (make_golden.py).
"""
import json
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cli"))
import harness  # noqa: E402

# Name: (folder or file, the command that makes it, golden values, rows of them that are run)
MODELS = {
    "smollm2": ("smollm2-135m-instruct", "scripts/real_models.sh", "smollm2", 50),
    "smollm2-gguf": ("smollm2-135m-instruct.gguf", "scripts/real_models.sh", "smollm2", 10),
    "gemma": ("gemma-3-270m", "scripts/real_models.sh gemma", "gemma", 50),
}
NEW_TOKENS = 64
PERPLEXITY_TOLERANCE = 0.001


def generated(binary, folder, rows, work):
    requests = [{"prompt": row["prompt"], "max_tokens": NEW_TOKENS, "ignore_eos": True} for row in rows]
    path = harness.write_jsonl(work / "in.jsonl", requests)
    done = harness.run(binary, ["generate", "--model", folder, "--input", path, "--output", "-", "--quiet"])
    if done.status != 0:
        sys.exit(f"generate ended with {done.status}: {done.stderr.decode()}")
    return [json.loads(line)["response"]["body"] for line in done.stdout.splitlines()]


def faults_of(number, row, body):
    """A row may leave the reference's where its two best tokens are close; what follows is another text."""
    if body["usage"]["prompt_tokens"] != len(row["prompt_ids"]):
        yield f"prompt {number}: {body['usage']['prompt_tokens']} tokens, not {len(row['prompt_ids'])}"
    found, expected = body["choices"][0]["token_ids"], row["token_ids"]
    if len(found) != len(expected):
        yield f"prompt {number}: {len(found)} new tokens, not {len(expected)}"
    step = next((i for i, (a, b) in enumerate(zip(found, expected)) if a != b), None)
    if step is not None and step not in row["close"]:
        yield f"prompt {number}: token {step} is {found[step]}, not {expected[step]}"


def check_tokens(binary, folder, rows, work):
    bodies = generated(binary, folder, rows, work)
    faults = [fault for number, (row, body) in enumerate(zip(rows, bodies, strict=True)) for fault in faults_of(number, row, body)]
    same = sum(body["choices"][0]["token_ids"] == row["token_ids"] for row, body in zip(rows, bodies))
    print(f"greedy tokens: {same} of {len(rows)} rows equal, {len(faults)} faults")
    return faults


def check_perplexity(binary, folder, golden, work):
    text = (harness.REPOSITORY / "examples" / "heldout_tales.txt").read_text(encoding="utf-8")[:golden["chars"]]
    (work / "text.txt").write_text(text, encoding="utf-8")
    done = harness.run(binary, ["score", "--model", folder, "--perplexity", work / "text.txt", "--window", golden["window"], "--stride", golden["stride"],
                                "--report", work / "report.json", "--quiet"])
    if done.status != 0:
        return [f"score ended with {done.status}: {done.stderr.decode()}"]
    score = json.loads((work / "report.json").read_text())["score"]
    off = score["perplexity"] / golden["value"] - 1
    print(f"perplexity: {score['perplexity']:.5f}, reference {golden['value']:.5f} ({off:+.4%}), {score['num_tokens']} tokens")
    faults = [f"perplexity is {off:+.3%} from the reference's"] if abs(off) > PERPLEXITY_TOLERANCE else []
    return faults + ([f"{score['num_tokens']} tokens, not {golden['num_tokens']}"] if score["num_tokens"] != golden["num_tokens"] else [])


def main():
    binary, name = sys.argv[1:3]
    place, command, golden_name, num_rows = MODELS[name]
    folder = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else harness.REPOSITORY / ".deps" / "models" / place
    if not (folder if folder.suffix == ".gguf" else folder / "config.json").exists():
        print(f"SKIPPED: no {folder}; {command} makes it")
        sys.exit(77)
    golden = json.loads((HERE / "golden" / f"{golden_name}.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as scratch:
        work = pathlib.Path(scratch)
        faults = check_tokens(binary, folder, golden["rows"][:num_rows], work) + check_perplexity(binary, folder, golden["perplexity"], work)
    for fault in faults:
        print(fault)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
