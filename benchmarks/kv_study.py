#!/usr/bin/env python3
"""What KV in fewer bits and bytes costs a model: the whole study by one command, as docs/kv.md quotes it.

  python3 benchmarks/kv_study.py path/to/spillway --model FOLDER --output DIR [--text FILE] [--documents FILE.jsonl] [--quick]
    [--prompts 128,448] [--kv-bytes 20,12] [--layers] [--shadow 25%]

For each way to keep the KV cache (bits; uniform budgets; with --layers budgets per layer; budgets per KV head, which `spillway
calibrate` finds on the text between the windows):
- how much the perplexity of a text rises, after short and after long prompts, with standard errors (benchmarks/kv_loss.py);
- summaries of documents, one a line as {"article": "..."}: how often the likeliest next token is the full cache's, the divergence,
  and the length of the answers, which `generate --shadow` tells. Without --documents, of pieces of the text.
Writes study.json, study.md and, where matplotlib is installed, study.png into DIR. A rerun measures only what is missing.
Needs the PyPI package tokenizers and the model's tokenizer.json. A model of 135 M parameters takes two hours of two cores;
--quick, a tenth of the windows and documents, proves nothing and shows all.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile
import types

import kv_loss
from kv_quality_plots import load_pyplot

ASK = "Summarize in one sentence: "
NEW_TOKENS = 48
DOCUMENT_CHARACTERS = 2400
H2O, WINDOW = kv_loss.POLICIES["h2o"], kv_loss.POLICIES["window"]
FEWER_BITS_BELOW = 15  # percent of the bytes, of budgets per KV head
UNIFORM = {
    "16 bits": kv_loss.FULL,
    "8 bits": ["--kv-bits", "8"],
    "8,4 bits": ["--kv-bits", "8,4"],
    "4 bits": ["--kv-bits", "4"],
    "h2o 20 %": [*H2O, "--kv-budget", "20%"],
    "h2o 20 %, 8,4 bits": [*H2O, "--kv-budget", "20%", "--kv-bits", "8,4"],
    "h2o 5 %": [*H2O, "--kv-budget", "5%"],
    "window 20 %, 4 first tokens": [*WINDOW, "--kv-budget", "20%"],
}


class Losses:
    """Perplexities after prompts of one length."""

    def __init__(self, options, prompt, place):
        place = place / f"prompt{prompt}"
        place.mkdir()
        settings = vars(options) | {"prompt": prompt, "output": options.output / f"prompt{prompt}.json", "windows": None,
                                    "calibrate_window": None}
        self.study = kv_loss.Study(types.SimpleNamespace(**settings), place)

    def measure(self, name, flags):
        rows = self.study.result["rows"]
        for wanted, of_row in (("full", kv_loss.FULL), (name, flags)):
            if wanted not in rows:
                self.study.measure(wanted, of_row)
        loss, error = kv_loss.loss_of(rows[name], rows["full"])
        perplexity = math.exp(statistics.fmean(rows[name]["losses"]))
        return {"loss": loss, "error": error, "perplexity": perplexity,
                "kv_bytes_frac": rows[name]["kv_bytes"] / rows["full"]["kv_bytes"]}


def documents_of(options):
    count = options.documents_count
    if options.documents is None:
        text = options.text.read_text(encoding="utf-8")
        stride = max(1, (len(text) - DOCUMENT_CHARACTERS) // count)
        return [text[begin : begin + DOCUMENT_CHARACTERS] for begin in range(0, stride * count, stride)]
    lines = options.documents.read_text(encoding="utf-8").splitlines()[:count]
    articles = [json.loads(line)["article"] for line in lines]
    # H2O's file has examples in front of the article and its question behind it.
    own = [article.split("Article: ")[-1].split("\n\nSummarize")[0] for article in articles]
    return [article[:DOCUMENT_CHARACTERS] for article in own]


def has_template(model):
    settings = model / "tokenizer_config.json"
    return (model / "chat_template.jinja").exists() or (
        settings.exists() and "chat_template" in json.loads(settings.read_text(encoding="utf-8")))


def request_of(document, options):
    limits = {"max_tokens": NEW_TOKENS}
    if has_template(options.model):
        return {"messages": [{"role": "user", "content": ASK + document}], **limits}
    return {"prompt": f"{document}\n\n{ASK}", **limits}


def summarise(flags, options, place):
    """What the receipt tells of the run, or nothing where it keeps the full cache of 16 bits."""
    source, report = place / "documents.jsonl", place / "report.json"
    source.write_text("".join(json.dumps(request_of(document, options)) + "\n" for document in documents_of(options)),
                      encoding="utf-8")
    words = [options.binary, "generate", "--model", options.model, "--input", source, "--output", place / "answers.jsonl",
             "--overwrite", "--quiet", "--allow-duplicate-ids", "--temperature", "0", "--report", report, "--shadow",
             options.shadow, *flags]
    words += ["--threads", options.threads] if options.threads else []
    done = subprocess.run(list(map(str, words)), stdout=subprocess.DEVNULL)
    if done.returncode not in (0, 21):
        sys.exit(f"kv_study: spillway generate ended with status {done.returncode}")
    return json.loads(report.read_text())["quality"]


def settings_of(options, study):
    """(name, flags) of each way to keep KV."""
    yield from UNIFORM.items()
    if options.layers:
        name = f"h2o per layer, {options.max_loss}"
        flags = ["--per", "layer", "--max-loss", options.max_loss, "--prefill", study.prompt]
        yield name, ["--policy", study.calibrate("per_layer", flags)]
    for share in options.kv_bytes:
        bits = "8,4" if float(share) >= FEWER_BITS_BELOW else "4"
        flags = ["--kv-bits", bits, "--kv-bytes", f"{share}%"]
        yield f"h2o per head, {bits} bits, {share} % of the bytes", ["--policy", study.calibrate(f"per_head_{share}", flags)]


def measure(options):
    file = options.output / "study.json"
    result = json.loads(file.read_text()) if file.exists() else {"settings": {}}
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        losses = {prompt: Losses(options, prompt, place) for prompt in options.prompts}
        first = losses[options.prompts[0]].study
        result |= {"about": first.result["about"], "prompts": options.prompts}
        for name, flags in settings_of(options, first):
            found = result["settings"].setdefault(name, {"flags": [str(flag) for flag in flags]})
            found["perplexity"] = {str(prompt): of.measure(name, flags) for prompt, of in losses.items()}
            if flags != kv_loss.FULL and "summaries" not in found:
                found["summaries"] = summarise(flags, options, place)
            file.write_text(json.dumps(result, indent=1) + "\n")
    return result


def table_of(result):
    prompts = result["prompts"]
    heads = ["KV", "bytes", *(f"loss, prompt {prompt}" for prompt in prompts), "likeliest token kept", "divergence, nats",
             "answers, tokens"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for name, found in result["settings"].items():
        of_prompts = [found["perplexity"][str(prompt)] for prompt in prompts]
        cells = [name, f"{of_prompts[0]['kv_bytes_frac']:.0%}"]
        cells += [f"{100 * of['loss']:+.2f} % ({100 * of['error']:.2f})" for of in of_prompts]
        quality = found.get("summaries")
        if quality:
            cells += [f"{100 * quality['same_token_frac']:.1f} % ({100 * (quality['same_token_error'] or 0):.1f})",
                      f"{quality['divergence']:.4f} ({quality['divergence_error'] or 0:.4f})",
                      f"{quality['answers']['mean_tokens']:.1f}, full {quality['answers']['mean_tokens_full']:.1f}"]
        else:
            cells += [f"perplexity {of_prompts[0]['perplexity']:.3f}" if name == "16 bits" else "", "", ""]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def draw(result, path):
    pyplot = load_pyplot()
    if pyplot is None:
        return print("kv_study: matplotlib is not installed: no picture is drawn", file=sys.stderr)
    figure, panels = pyplot.subplots(1, 2, figsize=(12, 5), layout="constrained")
    for name, found in result["settings"].items():
        of_prompts = [found["perplexity"][str(prompt)] for prompt in result["prompts"]]
        x = 100 * of_prompts[0]["kv_bytes_frac"]
        losses, errors = ([100 * of[key] for of in of_prompts] for key in ("loss", "error"))
        panels[0].errorbar([x] * len(losses), losses, yerr=errors, fmt="o-", capsize=3, label=name)
        if found.get("summaries"):
            panels[1].plot(x, 100 * found["summaries"]["same_token_frac"], "o", label=name)
        else:
            panels[1].plot([], [])  # the next one's color
    panels[0].set(title=f"Rise of the perplexity, %, prompts of {' and '.join(map(str, result['prompts']))}", yscale="symlog")
    panels[1].set(title="Summaries: likeliest token that of the full cache, %")
    for panel in panels:
        panel.set_xlabel("bytes of KV, % of the full cache of 16 bits")
        panel.grid(alpha=0.3)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=100)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--model", type=pathlib.Path, required=True, metavar="FOLDER")
    parser.add_argument("--output", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument("--text", type=pathlib.Path, default=kv_loss.REPOSITORY / "examples" / "heldout_tales.txt")
    parser.add_argument("--documents", type=pathlib.Path, metavar="FILE.jsonl", help='one {"article": "..."} a line')
    parser.add_argument("--documents-count", type=int, default=64)
    parser.add_argument("--window", type=int, default=512, help="tokens of a window of the text")
    parser.add_argument("--count", type=int, default=16, help="windows")
    parser.add_argument("--stride", type=int, help="tokens from one window to the next (spread over the text)")
    parser.add_argument("--prompts", type=lambda text: [int(part) for part in text.split(",")], default=[128, 448])
    parser.add_argument("--kv-bytes", type=kv_loss.comma_list, default=["20"], help="percent, of budgets per head")
    parser.add_argument("--layers", action="store_true", help="budgets per layer too, which take hours")
    parser.add_argument("--max-loss", default="1%", help="of budgets per layer")
    parser.add_argument("--sample", type=int, help="windows for calibrate (default: its own)")
    parser.add_argument("--shadow", default="25%", help="documents that the receipt compares")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    options.binary, options.model = options.binary.resolve(), options.model.resolve()
    if options.quick:
        options.count, options.documents_count, options.sample, options.shadow = 2, 6, 2, "50%"
    options.output.mkdir(parents=True, exist_ok=True)
    return options


def main():
    options = parse_arguments()
    result = measure(options)
    table = table_of(result)
    (options.output / "study.md").write_text(table, encoding="utf-8")
    print(table, end="")
    draw(result, options.output / "study.png")


if __name__ == "__main__":
    main()
