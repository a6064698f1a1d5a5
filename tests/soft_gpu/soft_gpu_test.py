"""The program on a GPU in software: the same bytes wherever weights, KV and states lie and however the block is shaped,
for every way of storing weights and KV; nearly the CPU's tokens; and the reference's where tokens are
evicted. Standard library only.

  python3 soft_gpu_test.py path/to/spillway_soft_gpu
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "cli"), str(TESTS / "parity"), str(TESTS / "gguf")]

import coded_models  # noqa: E402
import comparison  # noqa: E402
import engine  # noqa: E402
import gguf_writer  # noqa: E402
import harness  # noqa: E402
import prefix_test  # noqa: E402
from placements import (  # noqa: E402
    BESIDE_GPU, FEW_ON_GPU, H2O, PARITY_MODELS, WINDOW, check, differs_from_cpu, in_turn, on_gpu, placement, ragged_requests)

GPU = on_gpu("1GiB")
PLACEMENTS = [[*flags, *GPU] for flags in FEW_ON_GPU]
BESIDE = [[*flags, *GPU] for flags in BESIDE_GPU]
HEADS = ["--policy", TESTS / "parity" / "policies" / "heads-2x2.json"]  # budgets per KV head
CASES = [
    ["gelu-head80-untied"],
    ["sharded-head16", *H2O, "--weight-bits", 8],
    ["postnorm-projected", "--kv-bits", 8],
    ["gelu-head80-untied", "--weight-bits", 4, "--kv-bits", 4],
    ["postnorm-projected", "--kv-bits", 4, *H2O],
    ["bf16-head128", "--weight-bits", 4, "--kv-bits", "8,4", *WINDOW],
    ["llama-grouped-tied", "--kv-bits", 4],
    ["qwen3moe-plain", "--kv-bits", 4],
    ["gemma3-groups-windowed", "--kv-bits", 4, *H2O],
    ["neox-parallel"],
    ["qwen3-biased", "--weight-bits", 8],
    ["gemma2-full"],
    ["gemma3-wide-window", "--weight-bits", 4, *H2O],
    ["llama-groups-of-four", *H2O],
    ["mistral-groups-windowed", "--kv-bits", "8,4", *HEADS],
    ["llama-groups-of-four", "--kv-bits", 4, *HEADS],
    ["mixtral-stacked"],
    ["qwen3-biased", *H2O, "--kv-bits", "8,4", "--rolling"],
    ["neox-parallel", *WINDOW, "--rolling"],
    ["qwen2moe-stacked-dense", "--weight-bits", 8],
    ["gptoss-mxfp4", *H2O],
    ["olmo2-grouped-biased", "--kv-bits", "8,4"],
    ["smollm3-windowed", "--kv-bits", 4],
    ["granitemoe-plain"],
    ["granite-biased"],  # a vocabulary of 387
    ["granite-biased", "--weight-bits", 4, *H2O],
    ["glm4-scaled", "--weight-bits", 8],
]
# Of q, k and v, which are one call of products, and of what follows: x is rounded for some and packed in two ways for others.
MIXED_TYPES = {"llama-groups-of-four": {"attn_q": "Q4_0", "attn_k": "Q8_0", "ffn_gate": "Q4_1", "ffn_down": "Q5_0"},
               "qwen3moe-plain": {"attn_v": "Q8_0", "ffn_gate_exps": "Q4_0", "ffn_up_exps": "Q8_0", "ffn_down_exps": "Q4_1"}}
CODED_FORMS = ["gptq-4-wide", "packed-8-wide", "fp8-wide"]
# Rows on both sides of the original contexts of 64 and 96 tokens.
LONGER_CASES = [["dynamic"], ["longrope-neox"]]
CASES_BESIDE = [CASES[0], CASES[1], CASES[3], CASES[5], CASES[6], CASES[7], CASES[8], CASES[14], CASES[15], CASES[-2], CASES[-1]]
# Shares of rows that may have other greedy tokens than on the CPU. Activations are rounded to 16 bits on a GPU, and these
# small random models have many tokens that are nearly as likely as the best. Rounded otherwise, an element may have another
# code, which moves logits further.
MOST_THAT_DIFFER = 0.3
MOST_THAT_DIFFER_IN_CODES = 0.6
# Golden rows of KV policies that evict (parity/make_kv_golden.py): grouped queries, rotary positions, and windows shorter and
# longer than the budget. Activations of 16 bits move logprobs further than the CPU's bound of 0.002.
GOLDEN_ROWS = ["llama-groups-of-four.h2o-20", "llama-groups-of-four.window-sinks",
               "llama-groups-of-four.h2o-heads", "llama-groups-of-four.rolling-h2o-30-tokens",
               "neox-parallel.rolling-window-sinks", "gemma3-groups-windowed.h2o-30-tokens", "gptoss-wide.h2o-one-recent"]
GOLDEN_TOLERANCE = 0.01
LONGEST_GOLDEN_PROMPT = 100


def golden_errors(binary, name):
    """The reference's tokens, but for ties: the GPU keeps the tokens that the rule says."""
    golden = json.loads((TESTS / "parity" / "golden_kv" / f"{name}.json").read_text(encoding="utf-8"))
    expected = [row for row in golden["rows"] if len(row["prompt"]) <= LONGEST_GOLDEN_PROMPT]
    requests = engine.token_requests(expected, golden["max_tokens"])
    lines = engine.generate(binary, harness.REPOSITORY / golden["model"], requests, [*golden["flags"], *GPU])
    summary = comparison.compare(expected, [engine.row(line) for line in lines], GOLDEN_TOLERANCE)
    print(comparison.table_line(name, summary), *summary.failures[:5], sep="\n", flush=True)
    return len(summary.failures)


def refusal_errors(binary, source):
    """Refusals of what the kernels or the GPU's memory cannot do, in one line each."""
    wrong = 0
    for status, says, flags in (
        (2, b"puts 40 % of the KV", placement("100 0 40 30 100 0", 5, 2, "--cpu-attention", *GPU)),
        (30, b"--gpu-memory", ["--device", "cuda:0", "--gpu-memory", "65MiB", "--percent", 100, 0, 100, 0, 100, 0]),
        (42, b"there are 1 GPUs", ["--device", "cuda:1"]),
    ):
        model = ["--model", PARITY_MODELS / "gelu-head80-untied"]
        result = harness.run(binary, ["generate", *model, "--input", source, "--output", "-", *flags])
        if result.status != status or says not in result.stderr or len(result.stderr.splitlines()) != 1:
            print(f"FAILED {flags}: exit {result.status}: {result.stderr.decode(errors='replace')}")
            wrong += 1
    return wrong


def killed_after_a_line(words, part):
    """True where the run had written a line and was not done when it was killed."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not (part.exists() and part.stat().st_size > 0):
        time.sleep(0.001)
    process.kill()
    process.wait()
    return part.exists()


def resume_errors(binary, source, folder):
    """A run that was killed goes on with the attention it had, by the CPU, wherever KV is now; not with another."""
    output = folder / "resumed.jsonl"
    words = ["generate", "--model", PARITY_MODELS / "gelu-head80-untied", "--input", source, "--quiet"]
    beside = placement("100 0 0 100 100 0", 1, 2, "--cpu-attention", *GPU)
    whole = harness.run(binary, [*words, "--output", "-", *beside]).stdout
    begun = [str(word) for word in [binary, *words, "--output", output, *beside, "--overwrite"]]
    if not any(killed_after_a_line(begun, output.with_name("resumed.jsonl.part")) for _ in range(20)):
        print("FAILED: no run was killed half way")
        return 1
    resume = [*words, "--output", output, "--resume", *placement("0 0 0 0 0 0", 3, 3, *GPU)]
    other = harness.run(binary, [*resume, "--no-cpu-attention"])
    if other.status != 51 or b"another --cpu-attention" not in other.stderr:
        print(f"FAILED: resumed by the GPU: exit {other.status}: {other.stderr.decode(errors='replace')}")
        return 1
    result = harness.run(binary, resume)
    if result.status not in (0, 21) or output.read_bytes() != whole:
        print(f"FAILED: resumed: exit {result.status}: {result.stderr.decode(errors='replace')}")
        return 1
    return 0


def planned_on_gpu(binary, folder, *flags):
    report = folder / "plan.json"
    harness.run(binary, ["plan", "--model", "opt-125m", "--prompt-len", 100, "--gen-len", 20, "--num-requests", 24,
                         "--gpu-memory", "2GiB", "--report", report, "--quiet", *flags])
    return json.loads(report.read_text())["tiers"]["gpu"]["planned_peak_bytes"]


def plan_errors(binary, folder):
    """A plan for a machine file's GPU takes what one for the GPU itself does."""
    wrong = 0
    machine = harness.REPOSITORY / "examples" / "machines" / "h200.json"
    for flags in (
        placement("50 50 0 100 100 0", 4, 3, "--cpu-attention"),
        placement("50 50 40 60 100 0", 4, 3, *H2O),
        placement("50 50 40 60 100 0", 4, 3, "--weight-bits", 4, "--kv-bits", 4),
    ):
        here = planned_on_gpu(binary, folder, "--device", "cuda:0", *flags)
        there = planned_on_gpu(binary, folder, "--machine", machine, *flags)
        if here != there:
            print(f"FAILED: {flags} takes {here} bytes of the GPU, and {there} by a machine's file")
            wrong += 1
    return wrong


def coded_errors(binary, source, greedy, folder):
    """Codes of a checkpoint that are held as they are, in layers beside a head and an embedding of 16 bits."""
    wrong = 0
    plain = PARITY_MODELS / "llama-groups-of-four"
    for number, form in enumerate(CODED_FORMS):
        coded = folder / form
        shutil.copytree(plain, coded, ignore=shutil.ignore_patterns("*safetensors*"))
        config = json.loads((plain / "config.json").read_text(encoding="utf-8"))
        (folder / "values").mkdir(exist_ok=True)
        coded_models.make(gguf_writer.read_tensors(plain), config, form, coded, folder / "values")
        model = ["--model", coded]
        wrong += check(binary, model, source, folder, in_turn(PLACEMENTS, number, 1))
        wrong += check(binary, model, source, folder, in_turn(BESIDE, number, 1))
        wrong += differs_from_cpu(binary, model, greedy, folder, PLACEMENTS[0], MOST_THAT_DIFFER)
    return wrong


def mixed_errors(binary, source, greedy, folder):
    """Layers, and experts, whose matrices have several types, of GGUF files."""
    wrong = 0
    for name, types in MIXED_TYPES.items():
        file, store = folder / f"{name}.gguf", folder / f"{name}-store"
        gguf_writer.convert(PARITY_MODELS / name, file, coded=types)
        made = harness.run(binary, ["convert", "--model", file, "--output", store, "--quiet"], env={"XDG_CACHE_HOME": str(folder)})
        if made.status != 0:
            print(f"FAILED mixed types of {name}: {made.stderr.decode()}")
            wrong += 1
            continue
        model = ["--model", store]
        wrong += check(binary, model, source, folder, PLACEMENTS) + check(binary, model, source, folder, BESIDE)
        wrong += differs_from_cpu(binary, model, greedy, folder, PLACEMENTS[0], MOST_THAT_DIFFER)
    return wrong


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    failures = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        source = harness.write_jsonl(folder / "in.jsonl", ragged_requests(7, 36, 6))
        greedy = [request for request in ragged_requests(12, 36, 6) if "temperature" not in request]
        greedy_source = harness.write_jsonl(folder / "greedy.jsonl", greedy)
        failures += refusal_errors(binary, source)
        failures += resume_errors(binary, source, folder)
        failures += plan_errors(binary, folder)
        failures += sum(golden_errors(binary, name) for name in GOLDEN_ROWS)
        failures += coded_errors(binary, source, greedy_source, folder)
        failures += mixed_errors(binary, source, greedy_source, folder)
        for number, (model_name, *flags) in enumerate(CASES):
            model = ["--model", PARITY_MODELS / model_name, *flags]
            failures += check(binary, model, source, folder, PLACEMENTS if number == 0 else in_turn(PLACEMENTS, number, 1))
            most = MOST_THAT_DIFFER_IN_CODES if "--kv-bits" in flags else MOST_THAT_DIFFER
            failures += differs_from_cpu(binary, model, greedy_source, folder, PLACEMENTS[0], most)
            if [model_name, *flags] not in CASES_BESIDE:
                continue
            failures += check(binary, model, source, folder, BESIDE if number == 0 else in_turn(BESIDE, number, 1))
            failures += differs_from_cpu(binary, model, greedy_source, folder, BESIDE[2], most)
        alike = [{"token_ids": row, "max_tokens": 4} for row in prefix_test.prompts(1)]
        alike = harness.write_jsonl(folder / "alike.jsonl", alike)
        placements = [[*PLACEMENTS[0], *prefix_test.APART], PLACEMENTS[0], PLACEMENTS[2]]
        model = ["--model", PARITY_MODELS / "llama-groups-of-four", "--kv-bits", 8]
        failures += check(binary, model, alike, folder, placements)
        held = harness.write_jsonl(folder / "held.jsonl", prefix_test.alike(2, prefix=70, num_rows=7))
        for name, *flags in (["llama-groups-of-four", "--kv-bits", 4], ["qwen3moe-plain", *H2O], ["gelu-head80-untied", "--kv-bits", 8],
                             ["mistral-windowed"], ["mistral-groups-windowed", "--kv-bits", "8,4", *HEADS]):
            failures += check(binary, ["--model", PARITY_MODELS / name, *flags], held, folder, placements)
        longer = [request for request in ragged_requests(9, 130, 4) if "temperature" not in request]
        longer = harness.write_jsonl(folder / "longer.jsonl", longer)
        for number, (model_name, *flags) in enumerate(LONGER_CASES):
            model = ["--model", PARITY_MODELS / model_name, *flags]
            failures += check(binary, model, longer, folder, in_turn(PLACEMENTS, number, 1))
            failures += check(binary, model, longer, folder, in_turn(BESIDE, number, 1))
            failures += differs_from_cpu(binary, model, longer, folder, PLACEMENTS[0], MOST_THAT_DIFFER)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
