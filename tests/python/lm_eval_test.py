"""The lm-eval model beside lm-eval's own `hf` in float32: log-likelihoods of every choice, accuracies, generated texts and
perplexity of local tasks; left truncation; one batch a task; the command line. Skipped without lm-eval, torch and
transformers.

  python3 lm_eval_test.py path/to/spillway [--model DIR --questions N] [unittest arguments]
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import package

package.take_binary()
package.skip_without("lm_eval", "torch", "transformers")
CACHE = tempfile.TemporaryDirectory()  # of datasets, which reads the variable as it is imported
os.environ |= {"HF_HOME": CACHE.name, "HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

import lm_eval  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

import lm_eval_tasks  # noqa: E402
import spillway.lm_eval  # noqa: E402,F401  # registers the model

BUNDLED_MODEL = package.REPOSITORY / "examples" / "tales-opt-8m"
TEXT = (package.REPOSITORY / "examples" / "heldout_tales.txt").read_text()
OPTIONS = argparse.Namespace(model=BUNDLED_MODEL, questions=24)
# Two programs' float32 of a token, whose sums are taken in other orders; with weights of 16 bits on both sides.
TOLERANCE = 2e-3


def number_of(response):
    return float(response[0] if isinstance(response, (list, tuple)) else response)


class LmEvalTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.names = lm_eval_tasks.write_tasks(self.folder, TEXT, OPTIONS.questions)

    def evaluate(self, kind, names, **arguments):
        results = lm_eval.simple_evaluate(
            model=kind, model_args=arguments, tasks=names, log_samples=True, bootstrap_iters=0,
            task_manager=TaskManager(include_path=str(self.folder), include_defaults=False))
        self.assertEqual(sorted(results["results"]), sorted(names))
        return results

    def check_choices(self, name, ours, theirs):
        """Choices' log-likelihoods agree, and the chosen one does but where two are as good as equal."""
        num_ties = 0
        for sample, other in zip(ours["samples"][name], theirs["samples"][name], strict=True):
            values = [number_of(response[0]) for response in sample["resps"]]
            wanted = [number_of(response[0]) for response in other["resps"]]
            for value, expected in zip(values, wanted, strict=True):
                self.assertAlmostEqual(value, expected, delta=TOLERANCE * max(1, abs(expected)))
            best, second = sorted(wanted)[-1:-3:-1]
            num_ties += best - second < 2 * TOLERANCE * max(1, abs(best))
        for metric, value in theirs["results"][name].items():
            if metric.startswith("acc") and "stderr" not in metric:
                difference = abs(ours["results"][name][metric] - value) * len(ours["samples"][name])
                self.assertLessEqual(round(difference), num_ties, metric)
        return num_ties

    def test_tasks_are_those_of_hf(self):
        arguments = {"max_length": 256}  # the longest page is cut into windows, and no context fits all shots twice
        ours = self.evaluate("spillway", self.names, model=str(OPTIONS.model), **arguments)
        theirs = self.evaluate("hf", self.names, pretrained=str(OPTIONS.model), dtype="float32", device="cpu", **arguments)
        for name in ("local_endings", "local_letters"):
            ties = self.check_choices(name, ours, theirs)
            print(f"{name}: spillway {ours['results'][name]}, hf {theirs['results'][name]}, {ties} ties")
        texts = [[sample["resps"][0][0] for sample in results["samples"]["local_generated"]] for results in (ours, theirs)]
        num_other = sum(ours != theirs for ours, theirs in zip(*texts, strict=True))
        self.assertLessEqual(num_other, len(texts[0]) // 20, texts)
        perplexities = [results["results"]["local_rolling"]["word_perplexity,none"] for results in (ours, theirs)]
        self.assertAlmostEqual(perplexities[0] / perplexities[1], 1, delta=TOLERANCE)
        print(f"generated: {num_other} of {len(texts[0])} differ; word perplexities {perplexities}")

    def test_long_contexts_are_cut_as_hf_cuts_them(self):
        arguments = {"max_length": 40}
        ours = self.evaluate("spillway", ["local_letters"], model=str(OPTIONS.model), **arguments)
        theirs = self.evaluate("hf", ["local_letters"], pretrained=str(OPTIONS.model), dtype="float32", device="cpu",
                               **arguments)
        self.check_choices("local_letters", ours, theirs)

    def test_a_task_is_one_batch(self):
        model = spillway.lm_eval.SpillwayLM(str(OPTIONS.model), kv_policy="h2o", percent=[0, 0, 0, 100, 0, 100])
        results = lm_eval.simple_evaluate(
            model=model, tasks=["local_endings"], bootstrap_iters=0,
            task_manager=TaskManager(include_path=str(self.folder), include_defaults=False))
        self.assertIn("local_endings", results["results"])
        model._engine.close()
        self.assertIn(f" {4 * OPTIONS.questions} answers, 0 errors; 1 batches, 1 blocks, ", model._engine.summaries[-1])

    def test_the_command_and_what_it_refuses(self):
        command = [sys.executable, "-m", "spillway.lm_eval", "run", "--model", "spillway", "--tasks", "local_endings",
                   "--include_path", self.folder, "--limit", "4", "--model_args"]
        done = subprocess.run([*command, f"model={OPTIONS.model},kv_policy=h2o"], capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr.decode()[-2000:])
        self.assertIn(b"local_endings", done.stdout)
        done = subprocess.run([*command, f"model={OPTIONS.model},kv_polcy=h2o"], capture_output=True, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"did you mean --kv-policy?", done.stderr)
        model = spillway.lm_eval.SpillwayLM(str(OPTIONS.model))
        for gen_kwargs, reason in [({"num_beams": 2}, "num_beams"), ({"max_gen_toks": 5000}, "max_gen_toks 5000")]:
            with self.assertRaisesRegex(ValueError, reason):
                model._generation("A", gen_kwargs)


def take_options():
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument("--model", type=pathlib.Path, default=OPTIONS.model)
    parser.add_argument("--questions", type=int, default=OPTIONS.questions)
    _, rest = parser.parse_known_args(sys.argv[2:], OPTIONS)
    sys.argv[2:] = rest


if __name__ == "__main__":
    take_options()
    package.main()
