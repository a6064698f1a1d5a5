"""Quality of KV policies: perplexities from the files that --quality names, looked up by model and policy."""

import dataclasses
import json
import pathlib
import re

from .points import Unusable, member


@dataclasses.dataclass(frozen=True)
class Quality:
    """Quality of one model with one policy, on one text."""

    perplexity: float
    full: float | None  # perplexity of the same text with all KV
    agreement_frac: float | None = None  # next tokens that are those of the full cache

    @property
    def ratio(self):
        return self.perplexity / self.full if self.full else None


@dataclasses.dataclass(frozen=True)
class Entry:
    """Perplexity in a file, with what it is of."""

    model: str
    policy: dict  # {kv, kv_bits, weight_bits}, as reports have it
    text: object  # equal where perplexities can be compared
    quality: Quality


def key_of(model, policy):
    """Makes a text that is equal for runs of one model that hold the same KV and weights in the same bits."""

    def rounded(value):
        if isinstance(value, dict):
            return {key: rounded(item) for key, item in sorted(value.items())}
        if isinstance(value, list):
            return [rounded(item) for item in value]
        return round(float(value), 9) if isinstance(value, (int, float)) else value

    return json.dumps([model, *(rounded(policy.get(key)) for key in ("kv", "kv_bits", "weight_bits"))])


class QualityTable:
    """Qualities by model and policy. Where several files know one, the first of them counts."""

    def __init__(self, files=()):
        self.complaints = []
        self.sources = []  # one line for each file, for people
        self._known = {}
        self._models = {}  # by file
        entries = []
        for path in files:
            found, source = read_quality(path)
            self.sources.append(source)
            self._models[path] = found
            entries += found
        for entry in with_full(entries):
            self._known.setdefault(key_of(entry.model, entry.policy), entry.quality)

    def of(self, point):
        """Returns a point's Quality, or None where it is not known."""
        policy = member(point.report, "policy")
        return self._known.get(key_of(point.model, policy)) if isinstance(policy, dict) else None

    def unused(self, points):
        """Yields a line for each file that says nothing of these points."""
        wanted = {key_of(point.model, point.report["policy"]) for point in points if member(point.report, "policy")}
        for path, entries in self._models.items():
            if not any(key_of(entry.model, entry.policy) in wanted for entry in entries):
                models = ", ".join(sorted({entry.model for entry in entries}))
                yield f"{path}: is of {models}, with policies that no point of this sweep has"


def read_quality(path):
    """Returns (entries, what the file is). Raises Unusable."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Unusable(f"--quality {path}: {error.strerror}") from error
    except ValueError as error:
        raise Unusable(f"--quality {path}: is not JSON: {error}") from error
    for holds, read in ((("found", "full"), read_study), (("calibration",), read_calibration), (("score",), read_score)):
        if member(document, *holds) is None:
            continue
        try:
            return read(document, path.name)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise Unusable(f"--quality {path}: is not whole: {error!r}") from error
    raise Unusable(f"--quality {path}: holds no perplexity; give a report of spillway score --perplexity or of spillway "
                   "calibrate, or kv_quality.json of benchmarks/kv_quality.py")


def read_score(document, name):
    """Reads a report of `spillway score --perplexity FILE --report`."""
    score, model = document["score"], document["model"]["name"]
    text = ("score", score["num_tokens"])
    entry = Entry(model, document["policy"], text, Quality(float(score["perplexity"]), None))
    return [entry], f"{name}: spillway score, {model}, {score['num_tokens']} tokens"


def read_calibration(document, name):
    """Reads a report of `spillway calibrate --report`. Of budgets per KV head it is beside a full cache of 16 bits, after long
    prompts."""
    found, model = document["calibration"], document["model"]["name"]
    whole = document["policy"] | {"kv": {"policy": "full"}}
    if "prompts" in found:
        found, whole = found["prompts"][0], whole | {"kv_bits": 16}
    full = float(found["perplexity_full"])
    entries = [Entry(model, whole, None, Quality(full, full)),
               Entry(model, document["policy"], None, Quality(float(found["perplexity"]), full))]
    return entries, f"{name}: spillway calibrate, {model}, on the text that the budgets were found on"


def read_study(document, name):
    """Reads kv_quality.json of benchmarks/kv_quality.py, which measures KV and weights of 16 bits."""
    about, found = document["about"], document["found"]
    full = float(found["full"]["perplexity"])

    def entry(kv, result):
        policy = {"kv": kv, "kv_bits": 16, "weight_bits": 16}
        quality = Quality(float(result["perplexity"]), full, float(result["next_token_agreement"]))
        return Entry(about["model"], policy, None, quality)

    entries = [entry({"policy": "full"}, found["full"])]
    for policy, results in found["uniform"].items():
        entries += [entry(study_kv(policy) | {"budget": {"kept": {"frac": result["kv_frac"]}}}, result) for result in results]
    for policy, result in found["calibrated"].items():
        budgets = [{"kept": {"frac": layer["kept_frac"]}} for layer in result["on_known_text"]["layers"]]
        entries.append(entry(study_kv(policy) | {"layer_budgets": budgets}, result))
    return entries, (f"{name}: {about['command']}, {about['date']}, {about['machine']}; {about['model']} on {about['text']}, "
                     f"{found['full']['num_scored_tokens']} tokens")


def study_kv(name):
    """Turns "window + 4 sinks" into what a report says of such a policy, without its budget."""
    found = re.fullmatch(r"(h2o|window)(?: \+ (\d+) sinks)?", name)
    if found is None:
        raise ValueError(f"no KV policy: {name}")
    sinks = {"num_sinks": int(found[2] or 0)} if found[1] == "window" else {}
    return {"policy": found[1], **sinks}


def mean_kv_bits(bits):
    """Bits of an element in the mean, from one number for K and V or [K, V]."""
    return sum(bits) / len(bits) if isinstance(bits, list) else bits


def with_full(entries):
    """Yields the entries, with scores of one text compared with that of all KV in the most bits."""
    fulls = {}
    for entry in entries:
        if entry.text is None or member(entry.policy, "kv", "policy") != "full":
            continue
        # A policy that states none has the weights as they were published.
        bits = (mean_kv_bits(entry.policy["kv_bits"]), entry.policy.get("weight_bits", 16))
        key = (entry.model, entry.text)
        fulls[key] = max(fulls.get(key, (bits, entry.quality.perplexity)), (bits, entry.quality.perplexity))
    for entry in entries:
        _, full = fulls.get((entry.model, entry.text), (None, entry.quality.full))
        yield dataclasses.replace(entry, quality=dataclasses.replace(entry.quality, full=full))


def calibrated_policies(points):
    """Lists (KV policy, what `spillway calibrate` wrote of it) from the policy files that points ran with, where those are
    still there and the same."""
    found = {}
    for point in points:
        name = member(point.sweep("settings"), "policy")
        kv = member(point.report, "policy", "kv")
        if not name or not kv or not pathlib.Path(name).is_file():
            continue
        try:
            policy = json.loads(pathlib.Path(name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if member(policy, "kv") == kv:
            for source in member(policy, "sources") or []:
                if str(source).startswith("spillway calibrate:"):
                    found[point.kv, str(source)] = None
    return list(found)
