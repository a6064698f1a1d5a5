"""Rows of gpu_table.py: from what the programs print, into the result, and out as a table. Standard library only."""

import re

from gpu_table_settings import GIB, RUNS, SETTINGS

# --- what they say


def flexgen_figures(text):
    """Figures at the end of FlexGen's log; {} where it did not get there. Its GB are GiB."""
    phases = {}
    for phase in ("prefill", "decode", "total"):
        found = re.search(rf"^{phase} latency: ([\d.]+) s\t{phase} throughput: ([\d.]+) token/s", text, re.MULTILINE)
        if not found:
            return {}
        phases[phase] = float(found[1]), float(found[2])
    peak = re.search(r"^peak gpu mem: ([\d.]+) GB\tprojected: (\w+)", text, re.MULTILINE)
    return {"prefill_s": phases["prefill"][0], "decode_s": phases["decode"][0],
            "decode_tokens_per_s": phases["decode"][1], "tokens_per_s": phases["total"][1],
            "torch_peak_gpu_bytes": int(float(peak[1]) * GIB), "projected": peak[2] == "True"}


def pass_figures(text, gen_len):
    """Figures of the passes that gpu_table_peers.py told since the last beginning, all of them or not."""
    rows, seconds = 0, []
    for what, value in re.findall(r"^gpu_table (begin|pass) (\S+)$", text, re.MULTILINE):
        if what == "begin":
            rows, seconds = int(value), []
        elif rows:
            seconds.append(float(value))
    if not seconds:
        return {}
    figures = {"rows": rows, "passes": len(seconds), "prefill_s": seconds[0], "decode_s": sum(seconds[1:])}
    if len(seconds) > 1:
        figures["decode_tokens_per_s"] = rows * (len(seconds) - 1) / figures["decode_s"]
    rate = "tokens_per_s" if len(seconds) == gen_len else "so_far_tokens_per_s"
    return figures | {rate: rows * len(seconds) / sum(seconds)}


def spillway_figures(report):
    return {
        "rows": report["workload"]["num_requests"],
        "load_s": report["time_s"]["load"], "prefill_s": report["time_s"]["prefill"], "decode_s": report["time_s"]["decode"],
        "decode_tokens_per_s": report["throughput"]["decode_tokens_per_s"],
        "tokens_per_s": report["throughput"]["generated_tokens_per_s"],
        **{key: report[key] for key in ("predicted", "block", "policy", "links", "fingerprint")},
    }


def progress_figures(text):
    """The rate of the last progress line of a run of spillway that was stopped."""
    rates = re.findall(r"^ETA .* new at ([\d.]+)/s", text, re.MULTILINE)
    return {"so_far_tokens_per_s": float(rates[-1])} if rates else {}


def outcome(figures, done):
    """(status, why) of a row."""
    if "tokens_per_s" in figures:
        return "measured", None
    if done.stopped:
        told = f" ({figures['passes']} passes)" if "passes" in figures else ""
        return "unfinished", f"did not finish in {done.wall_s:.0f} s{told}"
    last = [line.strip() for line in done.text.splitlines() if line.strip()][-1:] or [f"exit status {done.status}"]
    return "failed", last[0][:200]


# --- the result


def key_of(row):
    return row["setting"], row["program"], row["kv"]


def merged(result, rows):
    """Each row in the place of its like, new ones behind."""
    by_key = {key_of(row): row for row in result["rows"] + rows}
    return result | {"rows": list(by_key.values())}


# --- the table


def rate_of(row):
    return row.get("tokens_per_s") or row.get("so_far_tokens_per_s")


def rate_text(row):
    if "tokens_per_s" in row:
        return f"{row['tokens_per_s']:.4g}" + (" (projected)" if row.get("projected") else "")
    return f"{rate_of(row):.4g} so far; {row['why']}" if rate_of(row) else row["why"]


def ratio_text(ours, row):
    if row["program"] == "spillway" or ours is None or not rate_of(ours) or not rate_of(row):
        return "-"
    whole = "tokens_per_s" in ours and "tokens_per_s" in row
    return ("" if whole else "about ") + f"{rate_of(ours) / rate_of(row):.2f} x"


def number(value, form):
    return "-" if value is None else format(value, form)


def block_text(block):
    if not block:
        return "-"
    shape = f"{block['gpu_batch_size']} x {block['num_gpu_batches']}"
    return shape if block.get("published", shape) == shape else f"{shape} ({block['published']} published)"


def line_of(row, ours):
    peak = row.get("peak_gpu_bytes")
    cells = [
        row["setting"].replace(":", ", "), row["program"], "H2O 20 %" if row["kv"] == "h2o" else "full",
        block_text(row.get("block")), rate_text(row),
        number(row.get("predicted", {}).get("generated_tokens_per_s"), ".4g"), number(row.get("decode_tokens_per_s"), ".4g"),
        number(row.get("prefill_s"), ".3g"), number(peak and peak / GIB, ".2f"), ratio_text(ours, row),
    ]
    return "| " + " | ".join(cells) + " |"


def table(result):
    header = ["model, prompt + new", "program", "KV", "rows x batches", "tokens/s", "predicted", "decode tokens/s",
              "prefill s", "peak GPU GiB", "Spillway over it"]
    order = {setting.name: at for at, setting in enumerate(SETTINGS)}
    rows = sorted(result["rows"], key=lambda row: (order.get(row["setting"], len(order)), row["setting"],
                                                   RUNS.index((row["program"], row["kv"]))))
    ours = {(row["setting"], row["kv"]): row for row in rows if row["program"] == "spillway"}
    lines = [line_of(row, ours.get((row["setting"], row["kv"]))) for row in rows]
    return "\n".join(["| " + " | ".join(header) + " |", "|" + "---|" * len(header), *lines])
