"""`--cpu-compute bf16`: another arithmetic, so other bytes and nearly the same text quality, but the same bytes for every
placement; refused where it cannot be. Standard library only. Exit status 77 where only the refusals could be tested.

  python3 cpu_compute_test.py path/to/spillway [unittest arguments]
"""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import harness
import placement_test
import placements

HELD_OUT = harness.REPOSITORY / "examples" / "heldout_tales.txt"
BF16 = ["--cpu-compute", "bf16"]
REQUESTS = placements.ragged_requests(17, 60, 16)


class Refusals(harness.VerbTest):
    def test_what_it_names(self):
        self.assertIn("fp32 or bf16", self.refusal(2, "generate", "--cpu-compute", "fp16"))

    def test_a_processor_without_the_tile_unit(self):
        for verb in (["plan", "--model", "opt-125m"], ["generate", "--input", "in.jsonl", "--output", "out.jsonl"]):
            harness.write_jsonl(self.folder / "in.jsonl", [{"prompt": "a"}])
            result = self.run_verb(*verb, *BF16, status=2, env={"SPILLWAY_ISA": "portable"})
            self.assertIn(b"--cpu-compute bf16 needs a processor with AMX or AVX512-BF16, and this run has portable", result.stderr)
            self.assertFalse((self.folder / "out.jsonl").exists())

    def test_the_machine_of_a_file(self):
        machine = harness.REPOSITORY / "examples" / "machines" / "xeon-2-cores.json"
        line = self.refusal(2, "plan", "--model", "opt-125m", "--machine", machine, *BF16)
        self.assertIn("--cpu-compute: --machine says", line)


class Bf16(harness.VerbTest):
    def generate(self, model, flags):
        source = harness.write_jsonl(self.folder / "in.jsonl", REQUESTS)
        return placements.run(self.binary, ["--model", model], source, self.folder, flags)

    def test_the_same_bytes_for_every_placement_and_others_than_in_fp32(self):
        for model in placement_test.SMALL_MODELS:
            expected, report = self.generate(model, [*placements.BF16[0], *BF16])
            self.assertIn(report["machine"]["isa"], ("amx_bf16", "avx512_bf16"))
            self.assertNotEqual(expected, self.generate(model, placements.BF16[0])[0])
            for flags in placements.BF16[1:]:
                with self.subTest(model=model, flags=flags):
                    self.assertEqual(self.generate(model, [*flags, *BF16])[0], expected)

    def test_quality_is_that_of_fp32_within_half_a_percent(self):
        losses = []
        text = self.folder / "text.txt"
        text.write_text(HELD_OUT.read_text(encoding="utf-8")[:20000], encoding="utf-8")
        for compute in ("fp32", "bf16"):
            out = self.run_verb("score", "--perplexity", text, "--quiet", "--cpu-compute", compute).stdout
            losses.append(float(out.split()[1]))
        self.assertLess(abs(losses[1] / losses[0] - 1.0), 0.005, losses)

    def test_a_run_goes_on_only_with_what_it_began_with(self):
        source = harness.write_jsonl(self.folder / "in.jsonl", REQUESTS)
        words = ["--input", source, "--output", "out.jsonl", "--quiet"]
        self.run_verb("generate", *words, *BF16)
        result = self.run_verb("generate", *words, "--resume", status=51)
        self.assertIn(b"not known as the output of this run", result.stderr)
        self.run_verb("generate", *words, "--resume", *BF16)


def main():
    harness.VerbTest.binary = pathlib.Path(sys.argv.pop(1)).resolve()
    probe = harness.run(harness.VerbTest.binary, ["plan", "--model", "opt-125m", "--cpu-compute", "bf16"])
    if b"needs a processor with AMX" in probe.stderr:
        print("bf16 on the CPU is not tested: this machine has neither AMX nor AVX512-BF16")
        unittest.main(argv=[sys.argv[0], "Refusals", *sys.argv[1:]], exit=False)
        sys.exit(77)
    unittest.main()


if __name__ == "__main__":
    main()
