"""The parts of gpu_step.py's steps: what is run, and what its verdict says. Standard library only."""

import concurrent.futures
import dataclasses
import functools
import gzip
import json
import os
import pathlib
import re
import shutil
import sys
import time

import gpu_step_ncu
import gpu_table
import gpu_table_rows
from gpu_step_run import CUT_OFF, FAILED, OK, ROOT, SKIPPED, Part, Verdict
from gpu_table_settings import Setting

GIB = 1 << 30
CAP_GIB = 16
MOST_FILE_BYTES = 15 << 20
MOST_TEST_S = 90.0  # of one GPU test
WITHIN = 0.1  # of a prediction
# Shares of the hardware's limit that are wanted, by how a line of gpu_bench begins.
WANTED = {"CPU to GPU, queue": 0.9, "GPU to CPU, queue": 0.9, "decode attention": 0.8}
PEERS = ("flexgen", "h2o_flexgen")


def origin_of(bundle):
    """Lines of ORIGIN: cuda, commit, architecture."""
    return dict(line.split(" ", 1) for line in (bundle / "ORIGIN").read_text().splitlines())


def last_line(text):
    return ([line.strip() for line in text.splitlines() if line.strip()] or ["no output"])[-1][-300:]


def ended(done, text):
    """The verdict of a program by how it ended."""
    if done.stopped:
        return Verdict(CUT_OFF, f"{text}; last: {last_line(done.text)}" if text else last_line(done.text))
    return Verdict(OK, text) if done.status == 0 else Verdict(FAILED, f"exit {done.status}: {last_line(done.text)}")


# --- 1: right


def check_program(step, seconds):
    version = step.command("program", [step.program("spillway"), "--version"], seconds)
    libraries = step.command("libraries", [step.program("spillway"), "--libraries"], seconds)
    step.command("nvidia-smi", ["nvidia-smi"], seconds)
    missing = [line for line in libraries.text.splitlines() if "not found" in line]
    origin = ", ".join(f"{key} {value}" for key, value in origin_of(step.bundle).items())
    if missing:
        return Verdict(FAILED, "; ".join(missing))
    return ended(version, f"{last_line(version.text)}; {origin}; {libraries.text.splitlines()[0]}")


def tests_of(listing):
    """Tests of --gtest_list_tests: a suite's line ends in a dot, its tests' are indented."""
    tests, suite = [], ""
    for line in listing.splitlines():
        name = line.split("#")[0].strip()
        if re.fullmatch(r"\S+\.", name) and not line.startswith(" "):
            suite = name
        elif suite and line.startswith("  "):
            tests.append(suite + name)
    return tests


def test_result(done, report):
    """("passed" | "skipped" | "failed" | "cut off", message) of one test; a crash leaves no report."""
    if done.stopped:
        return CUT_OFF, ""
    if not report.exists():
        return "failed", f"exit {done.status}: {last_line(done.text)}"
    [test] = [test for suite in json.loads(report.read_text())["testsuites"] for test in suite["testsuite"]]
    if test.get("failures"):
        return "failed", test["failures"][0]["failure"][:500]
    return ("skipped" if test["result"] == "SKIPPED" else "passed"), ""


def run_test(step, left, name):
    if left() < 3:
        return {"result": CUT_OFF, "message": "not begun", "seconds": 0.0}
    report = step.work / f"{name.replace('/', '-')}.json"
    words = [step.program("gpu_test"), f"--gtest_filter={name}", f"--gtest_output=json:{report}"]
    done = step.command(f"test-{name}", words, min(left(), MOST_TEST_S))
    result, message = test_result(done, report)
    return {"result": result, "message": message, "seconds": round(done.wall_s, 2)}


def tests_verdict(results):
    """A test that skips where there is a GPU is a failure."""
    by_result = {}
    for name, result in results.items():
        by_result.setdefault(result["result"], []).append(name)
    text = ", ".join(f"{len(names)} {result}" for result, names in by_result.items())
    wrong = by_result.get("failed", []) + by_result.get("skipped", [])
    if wrong:
        return Verdict(FAILED, f"{text}: {', '.join(wrong[:8])}")
    return Verdict(CUT_OFF if CUT_OFF in by_result else OK, text)


def listed_tests(step, seconds):
    done = step.command("tests-list", [step.program("gpu_test"), "--gtest_list_tests"], seconds)
    return tests_of(done.text) if done.status == 0 else []


def run_tests(step, seconds):
    """Each in a process of its own, for a fault of the GPU takes its process along; some at a time, for the oracles are the
    CPU's."""
    left = deadline(seconds)
    tests = listed_tests(step, left())
    if not tests:
        return Verdict(FAILED, "gpu_test lists no tests")
    with concurrent.futures.ThreadPoolExecutor(min(8, os.cpu_count())) as pool:
        results = dict(zip(tests, pool.map(functools.partial(run_test, step, left), tests)))
    step.keep_json("gpu_tests.json", results)
    return tests_verdict(results)


def deadline(seconds):
    """A function that says how many of them are left."""
    end = time.monotonic() + seconds
    return lambda: end - time.monotonic()


def script_part(step, seconds, script, kept):
    """A script of tests/gpu, whose last line is its verdict."""
    folder = step.new_folder(f"{script}-files")
    words = [sys.executable, "-B", ROOT / "tests/gpu" / f"{script}.py", step.program("spillway"), folder]
    done = step.command(script, words + (["--quick"] if step.rehearses else []), seconds)
    if kept and (folder / kept).exists():
        step.keep(kept, (folder / kept).read_text())
    return ended(done, last_line(done.text))


def run_families(step, seconds):
    """Models that the repository has and a bundle alone lacks."""
    if not (ROOT / "tests/parity").exists():
        return Verdict(SKIPPED, "tests/parity is not there: run from a checkout")
    return script_part(step, seconds, script="families_check", kept=None)


def bench_verdict(lines):
    rates = {line["name"]: line for line in lines if "rate" in line}
    low = [f"{name} {line['share_of_limit']:.2f}" for name, line in rates.items() for begin, wanted in WANTED.items()
           if name.startswith(begin) and line["share_of_limit"] < wanted]
    limits = [f"{name} {line['rate']:.4g} {line['unit']}" for name, line in rates.items() if line["share_of_limit"] is None
              and line["unit"] == "GB/s"]
    return ", ".join(limits) + "; below what is wanted: " + (", ".join(low) or "none")


def run_bench(step, seconds):
    done = step.command("gpu_bench", [step.program("gpu_bench")], seconds)
    lines = [json.loads(line) for line in done.text.splitlines() if line.startswith("{") and line.endswith("}")]
    step.keep_json("gpu_bench.json", {"hardware": step.hardware, "lines": lines})
    return ended(done, bench_verdict(lines))


def tool(name):
    """A program of the CUDA toolkit, or None."""
    return shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer")


def sanitize(step, seconds, name):
    """The suites but those of the library's own products, whose kernels are not ours to check, and of the profile."""
    program = tool("compute-sanitizer")
    if program is None:
        return Verdict(SKIPPED, "compute-sanitizer is not there")
    left = deadline(seconds)
    suites = dict.fromkeys(test.rpartition(".")[0] for test in listed_tests(step, left()))
    finished = []
    for suite in [suite for suite in suites if suite not in ("MatmulTest", "ProbeTest")]:
        words = [program, "--tool", name, "--target-processes", "all", "--error-exitcode", 9, step.program("gpu_test"),
                 f"--gtest_filter={suite}.*"]
        done = step.command(f"{name}-{suite}", words, left())
        if done.stopped or done.status != 0:
            return ended(done, f"{', '.join(finished) or 'no suite'} finished without an error")
        finished.append(suite)
    return Verdict(OK if finished else FAILED, f"{', '.join(finished) or 'no suite'}: no error")


# --- 2, 4, 5: tables


def table_file(step, cap_gib):
    """Rows of one cap: gpu_table.py keeps those of another apart."""
    return step.out / ("gpu_table.json" if cap_gib == CAP_GIB else f"gpu_table_{cap_gib}gib.json")


def gpu_table_words(step, cap_gib, *words):
    return [sys.executable, "-B", ROOT / "benchmarks/gpu_table.py", "--out", table_file(step, cap_gib), "--machine",
            step.out / "machine.json", "--spillway", step.program("spillway"), "--h2o", step.peers / "h2o_flexgen",
            "--gpu-memory", cap_gib * GIB, *words]


def measure_machine(step, seconds, quick):
    given = os.environ.get("SPILLWAY_STEP_MACHINE")
    if given:
        step.keep("machine.json", pathlib.Path(given).read_text())
        return Verdict(OK, f"{given} is used")
    done = step.command("machine", gpu_table_words(step, CAP_GIB, "--stage", "machine", "--seconds", seconds, *quick), seconds)
    return ended(done, machine_text(step.out / "machine.json") if done.status == 0 else "")


def machine_text(path):
    machine = json.loads(path.read_text())
    disturbed = machine.get("disturbed")
    return f"{machine.get('name', 'measured')}" + (f"; disturbed: {disturbed}" if disturbed else "")


def tiny_model(step):
    """A rehearsal's model, in place of OPT's shapes."""
    folder = step.work / "tiny"
    return folder if folder.exists() else gpu_table.write_config(folder, positions=2048, layers=2, hidden=64, heads=2)


def table_words(step, cap_gib, stage, programs, seconds):
    """A rehearsal has a tiny model for Spillway; the peers are stand-ins then, which take any."""
    words = ["--programs", programs, "--seconds", seconds]
    if not step.rehearses or not programs.startswith("spillway"):
        return gpu_table_words(step, cap_gib, "--stage", stage, *words)
    setting = Setting.parse(stage)
    tiny = dataclasses.replace(setting, model=str(tiny_model(step)), prompt_len=16, gen_len=4, rows=2 * bool(setting.rows))
    return gpu_table_words(step, cap_gib, "--stage", tiny.name, *words, "--requests", 2, "--cpu-memory", 2 * GIB)


def row_text(row):
    text = f"{row['program']} {row['kv']} {gpu_table_rows.rate_text(row)}"
    if row.get("tokens_per_s"):
        text += " tokens/s"
    predicted = (row.get("predicted") or {}).get("generated_tokens_per_s")
    if predicted and row.get("tokens_per_s"):
        ratio = row["tokens_per_s"] / predicted
        text += f" ({ratio:.2f} of predicted" + (")" if abs(ratio - 1) <= WITHIN else ", not within 10 %)")
    if row.get("peak_gpu_bytes"):
        text += f", peak {row['peak_gpu_bytes'] / GIB:.1f} GiB"
    return text


def table_verdict(rows, done, cap_gib):
    """Verdict on the rows that this part measured. A setting with rows of its own has no cap."""
    if not rows:
        return ended(done, "") if done.stopped or done.status else Verdict(FAILED, f"no rows: {last_line(done.text)}")
    text = "; ".join(map(row_text, rows))
    over = [row for row in rows
            if not Setting.parse(row["setting"]).rows and row.get("peak_gpu_bytes", 0) > cap_gib * GIB]
    states = {row["status"] for row in rows}
    if over or "failed" in states:
        return Verdict(FAILED, f"{text}; over the cap: {len(over)}" if over else text)
    return Verdict(CUT_OFF if done.stopped or "unfinished" in states else OK, text)


def missing_peers(step, programs):
    return [name for name in programs.split(",") if name in PEERS and not (step.peers / name).exists()]


def run_table(step, seconds, stage, programs, cap_gib):
    missing = missing_peers(step, programs)
    if missing:
        return Verdict(SKIPPED, f"{', '.join(missing)} not in {step.peers}: scripts/gpu_peers.sh makes it")
    words = table_words(step, cap_gib, stage, programs, seconds - 2)
    before = rows_of(step, cap_gib)
    environment = {"PYTHONPATH": str(step.peers / "flexgen")}
    done = step.command(f"{stage}-{programs}", words, seconds, environment)
    return table_verdict([row for row in rows_of(step, cap_gib) if row not in before], done, cap_gib)


def rows_of(step, cap_gib):
    path = table_file(step, cap_gib)
    return json.loads(path.read_text())["rows"] if path.exists() else []


def table_part(name, seconds):
    """A part called MODEL[@BITS]:PROMPT+NEW[xROWS]/PROGRAMS[/CAPGiB]."""
    stage, programs, *cap = name.split("/")
    cap_gib = int(cap[0].removesuffix("GiB")) if cap else CAP_GIB
    return Part(name, seconds, functools.partial(run_table, stage=stage, programs=programs, cap_gib=cap_gib), 20)


# --- 3: where the time goes


def bench_words(step, model, prompt_len, gen_len, flags):
    if step.rehearses:
        model, prompt_len, gen_len = tiny_model(step), 16, 4
    return [step.program("spillway"), "bench", "--model", model, "--dummy-weights", "--device", "cuda:0", "--prompt-len",
            prompt_len, "--gen-len", gen_len, *flags]


def block_flags(step, percent, rows, batches, *more):
    rows = 2 if step.rehearses else rows
    return ["--percent", *percent.split(), "--gpu-batch-size", rows, "--num-gpu-batches", batches, *more]


def link_text(report):
    shares = []
    for name, link in report["links"].items():
        peak, busy = link.get("peak_bytes_per_s"), link.get("busy_s") or 0
        if busy and link.get("bytes"):
            rate = link["bytes"] / busy
            shares.append(f"{name} {rate / 1e9:.3g} GB/s" + (f", {rate / peak:.2f} of the machine's" if peak else ""))
    return "; ".join(shares)


def run_trace(step, seconds, name, model, flags):
    """A traced run of blocks of flags = (percent, rows, batches, further flags)."""
    left = deadline(seconds)
    folder = step.new_folder(f"{name}-files")
    trace, report = step.work / f"{name}.trace.json", folder / "report.json"
    machine = step.out / "machine.json"
    words = bench_words(step, model, 512, 8, [*block_flags(step, *flags), "--trace", trace, "--report", report,
                                                   *(["--machine", machine] if machine.exists() else [])])
    done = step.command(name, words, left())
    if done.status != 0 or done.stopped:
        return ended(done, "")
    step.command(f"{name}-inspect", [step.program("spillway"), "inspect", trace], left())
    step.command(f"{name}-report", [step.program("spillway"), "inspect", report], left())
    packed = gzip.compress(trace.read_bytes())
    if len(packed) <= MOST_FILE_BYTES:
        (step.out / f"{name}.trace.json.gz").write_bytes(packed)
    found = json.loads(report.read_text())
    rates = found["throughput"]
    return Verdict(OK, f"prefill {rates['prefill_tokens_per_s']:.4g}, decode {rates['decode_tokens_per_s']:.4g} tokens/s; "
                       + link_text(found))


def run_ncu(step, seconds, name, model, lengths, flags):
    program = tool("ncu")
    if program is None:
        return Verdict(SKIPPED, "ncu is not there")
    words = bench_words(step, model, *lengths, block_flags(step, *flags))
    return gpu_step_ncu.run(step, deadline(seconds), [program, name], words)


# --- the steps


def spillway_and_peers(stage, seconds):
    """The caches apart, so that a slow one does not take the other's time."""
    ours, theirs = seconds
    return [table_part(f"{stage}/spillway:h2o", ours), table_part(f"{stage}/spillway:full", ours),
            table_part(f"{stage}/flexgen,h2o_flexgen", theirs)]


def trace_part(name, seconds, model, flags):
    return Part(name, seconds, functools.partial(run_trace, name=name, model=model, flags=flags))


def ncu_part(name, seconds, model, lengths, flags):
    run = functools.partial(run_ncu, name=name, model=model, lengths=lengths, flags=flags)
    return Part(name, seconds, run, 30)


ALL_ON_GPU = "100 0 100 0 100 0"
QUICK = functools.partial(measure_machine, quick=["--quick"])
STEPS = {
    1: [Part("program", 30, check_program, 1),
        Part("tests", 170, run_tests),
        Part("placement", 150, functools.partial(script_part, script="placement_check", kept=None)),
        Part("answers", 60, functools.partial(script_part, script="answers_check", kept="answers.json")),
        Part("bench", 90, run_bench),
        *[Part(name, 470, functools.partial(sanitize, name=name), 20)
          for name in ("memcheck", "racecheck", "initcheck", "synccheck")]],
    2: [Part("machine", 160, functools.partial(measure_machine, quick=[])),
        *spillway_and_peers("opt-6.7b:512+32", (60, 90)),
        *spillway_and_peers("opt-6.7b:512+512", (70, 120))],
    3: [Part("machine", 60, QUICK),
        trace_part("on_gpu", 60, "opt-6.7b", (ALL_ON_GPU, 32, 1)),
        trace_part("streamed", 70, "opt-6.7b", ("0 100 0 100 100 0", 32, 2)),
        trace_part("beside", 70, "llama-3.1-8b", ("50 50 0 100 100 0", 64, 4, "--cpu-attention")),
        # Passes of one token, but for a short first one.
        ncu_part("ncu_decode", 120, "opt-6.7b", (16, 3), (ALL_ON_GPU, 24, 1, "--kv-policy", "h2o", "--kv-budget", "20%")),
        ncu_part("ncu", 160, "opt-1.3b", (512, 3), (ALL_ON_GPU, 16, 1))],
    4: [Part("machine", 60, QUICK),
        table_part("opt-6.7b:2048+2048x24/spillway:h2o", 110),
        table_part("opt-6.7b:2048+2048x24/h2o_flexgen", 170),
        *spillway_and_peers("opt-6.7b:512+1024", (70, 150))],
    5: [Part("machine", 60, QUICK),
        table_part("opt-30b:512+32/spillway:h2o", 230),
        table_part("opt-30b:512+32/spillway:full", 230)],
    6: [Part("machine", 60, QUICK),
        Part("families", 120, run_families),
        table_part("llama-3.1-8b:512+512/spillway:h2o", 60),
        table_part("llama-3.1-8b:512+512/spillway:full", 60),
        table_part("llama-3.1-8b@4:512+512/spillway:full", 60),
        table_part("llama-3.1-70b@4:512+32/spillway:full/24GiB", 150),
        table_part("llama-3.1-70b@4:512+32/spillway:full", 150)],
}


def parts_of(number, names):
    """All parts of a step, or those named. Throws: ValueError: no such part."""
    if not names:
        return STEPS[number]
    known = {part.name: part for part in STEPS[number]}
    parts = []
    for name in names:
        if name in known:
            parts.append(known[name])
        elif re.fullmatch(r"[\w.-]+(@[48])?:\d+\+\d+(x\d+)?/[\w:,]+(/\d+GiB)?", name):
            parts.append(table_part(name, 470))
        else:
            raise ValueError(f"step {number} has no part {name}: {', '.join(known)}")
    return parts
