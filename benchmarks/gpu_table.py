#!/usr/bin/env python3
"""Tokens per second on one NVIDIA GPU: Spillway, FlexGen, h2o_flexgen and Hugging Face Accelerate, OPT shapes with dummy
weights, under the same caps of GPU and CPU memory; and H2O's latency settings without a GPU cap.

  benchmarks/gpu_table.sh --list
  benchmarks/gpu_table.sh --out F.json --stage machine
  benchmarks/gpu_table.sh --out F.json --stage opt-30b:512+32 [--programs spillway:h2o,h2o_flexgen] [--quick] [--dry-run]
  benchmarks/gpu_table.sh --out F.json --add G.json          # the rows of another result of this GPU and cap
  benchmarks/gpu_table.sh --out F.json                       # the table of what was measured so far

A stage ends within --seconds: its programs share what is left, and one that is stopped gives a row with what it had done.
OPT-30B wants a whole stage for each of its programs: making its weights takes its time too.
Rows of a stage replace their like in F.json. Stage machine comes first: it measures the rates that Spillway's policies are
searched and predicted with. FlexGen (PyPI: flexgen) and Accelerate (accelerate, transformers) are those of the Python that
runs this; --h2o is the folder h2o_flexgen of FMInference/H2O. Nothing needs a network.
"""

import argparse
import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time

import origin
from gpu_table_rows import (flexgen_figures, merged, outcome, pass_figures, progress_figures, rate_text, spillway_figures,
                            table)
from gpu_table_settings import (GIB, ON_GPU, POSITIONS, RUNS, SETTINGS, SHAPES, VOCABULARY, Setting, accelerate_batch, fitted,
                                left_out, published_block)

NO_GPU = 42
PEERS = pathlib.Path(__file__).resolve().with_name("gpu_table_peers.py")
DRIVER_BYTES = GIB  # of a cap, that a search leaves to the driver and the libraries; the run measures what they take
ENDING_S = 10  # what a program that is stopped, and the row, may take

# --- the commands


def write_config(folder, positions, layers, hidden, heads):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({
        "model_type": "opt", "architectures": ["OPTForCausalLM"], "hidden_size": hidden, "word_embed_proj_dim": hidden,
        "num_hidden_layers": layers, "num_attention_heads": heads, "ffn_dim": 4 * hidden, "vocab_size": VOCABULARY,
        "max_position_embeddings": positions, "do_layer_norm_before": True, "activation_function": "relu",
        "torch_dtype": "float16"}))
    return folder


def spillway_commands(args, setting, kv, folder):
    """The search and the run of one block of what it found; a latency setting states its block."""
    model = setting.model
    if setting.positions > POSITIONS and model in SHAPES:
        model = write_config(folder / f"{model}-{setting.positions}", setting.positions, *SHAPES[model])
    work = ["--model", model, "--dummy-weights", "--prompt-len", setting.prompt_len, "--gen-len", setting.gen_len,
            "--machine", args.machine, "--cpu-memory", args.cpu_memory]
    if setting.weight_bits:
        work += ["--weight-bits", setting.weight_bits]
    cache = ["--kv-policy", kv] + (["--kv-budget", "20%"] if kv == "h2o" else [])
    bench = [args.spillway, "bench", *work, "--device", "cuda:0", "--report", folder / "report.json"]
    if setting.rows:
        return [[*bench, *cache, "--percent", *ON_GPU, "--gpu-batch-size", setting.rows, "--num-gpu-batches", 1]]
    search = [args.spillway, "search", *work, *cache, "--num-requests", args.requests, "--gpu-memory",
              args.gpu_memory - DRIVER_BYTES, "--quiet", "--output", folder / "policy.json"]
    return [search, [*bench, "--gpu-memory", args.gpu_memory, "--policy", folder / "policy.json"]]


def peer_command(args, program, setting, folder):
    """The command and its block; None where no block fits in CPU memory."""
    cap = 0 if setting.rows else args.gpu_memory
    front = [sys.executable, "-B", PEERS, "accelerate" if program == "accelerate" else "flexgen", cap, setting.positions]
    if program == "accelerate":
        rows, weights_on_gpu = accelerate_batch(setting, cap or args.gpu_bytes)
        numbers = [*SHAPES[setting.model], setting.prompt_len, setting.gen_len, weights_on_gpu, args.cpu_memory]
        return [*front, rows, *numbers], {"gpu_batch_size": rows, "num_gpu_batches": 1}
    published = published_block(program, setting)
    block = fitted(dataclasses.replace(published, batches=1) if args.quick else published, setting, args.cpu_memory)
    if block is None:
        return None, None
    flags = ["--model", f"facebook/{setting.model}", "--path", "_DUMMY_", "--offload-dir", folder / "offload",
             "--prompt-len", setting.prompt_len, "--gen-len", setting.gen_len, *block.flags()]
    shape = {"gpu_batch_size": block.rows, "num_gpu_batches": block.batches, "percent": block.percent,
             "published": f"{published.rows} x {published.batches}"}
    return [*front, block.rows * block.batches, *flags], shape


# --- running


def nvidia_smi(*words):
    """Lines that nvidia-smi prints; none where it is not there."""
    with contextlib.suppress(FileNotFoundError):
        return subprocess.run(["nvidia-smi", *words], capture_output=True, text=True, check=False).stdout.splitlines()
    return []


class GpuMemory(threading.Thread):
    """The most that nvidia-smi saw in use on the first GPU meanwhile."""

    def __enter__(self):
        self.ended, self.peak_bytes = threading.Event(), 0
        self.start()
        return self

    def run(self):
        used = ["-i", "0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        while True:
            self.peak_bytes = max([self.peak_bytes, *(int(line) << 20 for line in nvidia_smi(*used))])
            if self.ended.wait(0.5):
                return

    def __exit__(self, *_):
        self.ended.set()
        self.join()


@dataclasses.dataclass
class Done:
    status: int
    text: str
    wall_s: float
    stopped: bool
    peak_gpu_bytes: int


def run(words, seconds, folder, environment):
    """Runs a program, both outputs together. At the time limit its whole group is asked to end, and killed a little later."""
    begin = time.monotonic()
    stopped = False
    with open(folder / "output", "w", encoding="utf-8") as out, GpuMemory() as gpu:
        try:
            process = subprocess.Popen(list(map(str, words)), stdout=out, stderr=subprocess.STDOUT, cwd=folder,
                                       env=os.environ | environment, start_new_session=True)
        except OSError as error:
            return Done(127, f"{words[0]}: {error.strerror}", 0.0, False, 0)
        try:
            process.wait(max(1.0, seconds))
        except subprocess.TimeoutExpired:
            stopped = True
            os.killpg(process.pid, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(ENDING_S * 3 / 4)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    text = (folder / "output").read_text(encoding="utf-8", errors="replace")
    return Done(process.returncode, text, time.monotonic() - begin, stopped, gpu.peak_bytes)


# --- a stage


def figures_of(program, done, setting, folder):
    report = folder / "report.json"
    if program == "spillway" and done.status == 0 and report.exists():
        return spillway_figures(json.loads(report.read_text()))
    if program == "spillway":
        return progress_figures(done.text)
    return flexgen_figures(done.text) or pass_figures(done.text, setting.gen_len)


def measured_row(args, run_of, setting, seconds, folder):
    """Measures what a row has beside its names; in a dry run its commands alone."""
    program, kv = run_of
    why = left_out(program, kv, setting, args.gpu_bytes)
    if why:
        return {"status": "left out", "why": why}
    row, environment = {}, {"PYTHONPATH": str(args.h2o)} if program == "h2o_flexgen" else {}
    if program == "spillway":
        commands = spillway_commands(args, setting, kv, folder)
    else:
        command, row["block"] = peer_command(args, program, setting, folder)
        if command is None:
            return {"status": "left out", "why": f"no block fits in {args.cpu_memory / GIB:.0f} GiB of CPU memory"}
        commands = [command]
    row["commands"] = [shlex.join(map(str, words)) for words in commands]
    if args.dry_run:
        return row
    for words in commands:
        done = run(words, seconds, folder, environment)
        seconds -= done.wall_s
        if done.status != 0:
            break
    figures = figures_of(program, done, setting, folder)
    if program == "accelerate" and figures:
        row["block"]["gpu_batch_size"] = figures["rows"]  # fewer where the first ones did not fit
    status, why = outcome(figures, done)
    if status != "measured":
        row["last_output"] = done.text[-2000:]
    found = re.findall(r"^gpu_table versions (.*)$", done.text, re.MULTILINE)
    return row | figures | {"status": status, "why": why, "wall_s": done.wall_s, "peak_gpu_bytes": done.peak_gpu_bytes,
                            "versions": found[-1] if found else None}


def run_stage(args, setting):
    runs = [run_of for run_of in RUNS if {run_of[0], ":".join(run_of)} & set(args.programs)]
    end = time.monotonic() + args.seconds
    if not args.dry_run:
        save(args, [])  # refuses a file of another GPU before anything is measured
    for at, (program, kv) in enumerate(runs):
        share_s = (end - time.monotonic()) / (len(runs) - at) - ENDING_S
        row = {"setting": setting.name, "program": program, "kv": kv, "commit": origin.commit(),
               "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")}
        with tempfile.TemporaryDirectory(prefix="gpu-table-") as name:
            more = measured_row(args, (program, kv), setting, share_s, pathlib.Path(name))
        if args.dry_run:
            print(*more.get("commands", [f"{program} {kv}: {more.get('why')}"]), sep="\n")
        else:
            save(args, [row | more])
            print(f"{setting.name} {program} {kv}: {more['status']}, {rate_text(more)}", flush=True)


# --- the machine's rates


def measure_machine(args):
    with tempfile.TemporaryDirectory(prefix="gpu-table-") as name:
        words = [args.spillway, "profile", "--device", "cuda:0", "--quiet", *(["--quick"] if args.quick else []),
                 "--output", args.machine]
        if args.dry_run:
            print(shlex.join(map(str, words)))
            return
        done = run(words, args.seconds - ENDING_S, pathlib.Path(name), {})
        if done.status != 0:
            sys.exit(f"gpu_table: {words[0]}: {outcome({}, done)[1]}")
    print(args.machine)


# --- the result


def memory_bytes():
    """Memory of the machine, or of the cgroup where that is less."""
    least = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            least = min(least, int(pathlib.Path(file).read_text()))
    return least


def hardware():
    return {"gpus": [re.sub(r" \(UUID:.*", "", line) for line in nvidia_smi("-L")],
            "driver": "".join(nvidia_smi("-i", "0", "--query-gpu=driver_version", "--format=csv,noheader")),
            "cpu": origin.processor_name(), "processors": os.cpu_count(), "memory_bytes": memory_bytes()}


def save(args, rows):
    write(args, {"version": 1, "hardware": hardware(), "gpu_memory": args.gpu_memory, "cpu_memory": args.cpu_memory,
                 "rows": []}, rows)


def add(args):
    other = json.loads(args.add.read_text())
    write(args, other | {"rows": []}, other["rows"])


def write(args, new, rows):
    """Rows into OUT, which is `new` where there is none."""
    result = json.loads(args.out.read_text()) if args.out.exists() else new
    if (result["hardware"]["gpus"], result["gpu_memory"]) != (new["hardware"]["gpus"], new["gpu_memory"]):
        sys.exit(f"gpu_table: {args.out} is of another GPU or --gpu-memory; give another --out")
    partial = args.out.with_name(args.out.name + ".part")
    partial.write_text(json.dumps(merged(result, rows), indent=1) + "\n")
    partial.replace(args.out)


def list_stages():
    print(f"{'machine':24} the rates that Spillway's policies are searched with")
    for setting in SETTINGS:
        print(f"{setting.name:24} " + ("one batch, all on the GPU, no GPU cap" if setting.rows else "under the caps"))
        if setting.positions > POSITIONS:
            print(f"{'':24} OPT has {POSITIONS} positions: all programs get a longer table, of {setting.positions}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the stages")
    parser.add_argument("--out", type=pathlib.Path, help="the results")
    parser.add_argument("--stage", help="machine, one of --list, or any other MODEL[@BITS]:PROMPT+NEW[xROWS]")
    parser.add_argument("--programs", type=lambda text: text.split(","), default=[program for program, _ in RUNS],
                        help="of the stage: spillway,flexgen,h2o_flexgen,accelerate; spillway:h2o is that one alone")
    parser.add_argument("--seconds", type=float, default=570, help="of the stage, all programs together (570)")
    parser.add_argument("--gpu-memory", type=int, default=16 * GIB, metavar="BYTES", help="the same for all (16 GiB)")
    parser.add_argument("--cpu-memory", type=int, default=memory_bytes() * 9 // 10, metavar="BYTES", help="likewise (90 %%)")
    parser.add_argument("--requests", type=int, default=4096, help="that Spillway's block is searched for (4096)")
    parser.add_argument("--quick", action="store_true", help="8 new tokens, one batch a block, 64 requests; a quick profile")
    parser.add_argument("--add", type=pathlib.Path, metavar="G.json", help="a result whose rows are taken into OUT")
    parser.add_argument("--dry-run", action="store_true", help="print the commands")
    parser.add_argument("--spillway", type=pathlib.Path, default=origin.REPOSITORY / "build/gpu/spillway")
    parser.add_argument("--h2o", type=pathlib.Path, default=pathlib.Path("h2o_flexgen"), help="folder of h2o_flexgen")
    parser.add_argument("--machine", type=pathlib.Path, help="machine file (OUT with .machine.json)")
    args = parser.parse_args()
    if not args.list and not args.out:
        parser.error("--out FILE is needed")
    try:
        args.setting = None if args.stage in (None, "machine") else Setting.parse(args.stage)
    except argparse.ArgumentTypeError as error:
        parser.error(f"--stage {error}")
    known = {name for run_of in RUNS for name in (run_of[0], ":".join(run_of))}
    if not known.issuperset(args.programs):
        parser.error(f"--programs takes {', '.join(sorted(known))}")
    if args.quick:
        args.requests = 64
        args.setting = args.setting and dataclasses.replace(args.setting, gen_len=8)
    return args


def main():
    args = arguments()
    if args.list:
        list_stages()
        return
    if args.add and not args.dry_run:
        add(args)
    args.out, args.spillway, args.h2o = args.out.resolve(), args.spillway.resolve(), args.h2o.resolve()
    args.machine = (args.machine or args.out.with_suffix(".machine.json")).resolve()
    gpus = nvidia_smi("--query-gpu=memory.total", "--format=csv,noheader,nounits")
    if args.stage and not gpus and not args.dry_run:
        print("gpu_table: this machine has no GPU (nvidia-smi lists none)", file=sys.stderr)
        sys.exit(NO_GPU)
    args.gpu_bytes = int(gpus[0]) << 20 if gpus else 80 * GIB
    if args.stage == "machine":
        measure_machine(args)
    elif args.setting:
        if not args.machine.exists() and not args.dry_run:
            sys.exit(f"gpu_table: {args.machine} is not there; run --stage machine first")
        run_stage(args, args.setting)
    if args.out.exists() and not args.dry_run:
        print(table(json.loads(args.out.read_text())))


if __name__ == "__main__":
    main()
