"""`--cpu-compute bf16` and `int8`: other arithmetics, so other bytes and nearly the same text quality, but the same bytes for
every placement; refused where they cannot be. Standard library only. Exit status 77 where only the refusals could be tested.

  python3 cpu_compute_test.py path/to/spillway [unittest arguments]
"""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import harness
import placement_test
import placements

HELD_OUT = harness.REPOSITORY / "examples" / "heldout_tales.txt"
BF16 = ["--cpu-compute", "bf16"]
INT8 = ["--cpu-compute", "int8"]
REQUESTS = placements.ragged_requests(17, 60, 16)


class Refusals(harness.VerbTest):
    def test_what_it_names(self):
        self.assertIn("fp32, bf16 or int8", self.refusal(2, "generate", "--cpu-compute", "fp16"))

    def test_a_processor_without_the_tile_unit(self):
        for verb in (["plan", "--model", "opt-125m"], ["generate", "--input", "in.jsonl", "--output", "out.jsonl"]):
            harness.write_jsonl(self.folder / "in.jsonl", [{"prompt": "a"}])
            for flags, unit in ((BF16, b"bf16 needs a processor with AMX or AVX512-BF16"), (INT8, b"int8 needs a processor with AMX or AVX-512 VNNI")):
                result = self.run_verb(*verb, *flags, "--weight-bits", 8, status=2, env={"SPILLWAY_ISA": "portable"})
                self.assertIn(b"--cpu-compute " + unit + b", and this run has portable", result.stderr)
            self.assertFalse((self.folder / "out.jsonl").exists())

    def test_the_machine_of_a_file(self):
        machine = harness.REPOSITORY / "examples" / "machines" / "xeon-2-cores.json"
        words = ["plan", "--model", "opt-125m", "--machine", machine]
        for flags, what in (
            (BF16, "--cpu-compute: the machine of --machine multiplies in fp32"),
            (["--threads", 3], "--threads: the machine of --machine has 2 threads"),
        ):
            self.assertIn(what, self.refusal(2, *words, *flags))
        plain = self.run_verb(*words).stdout
        self.assertEqual(self.run_verb(*words, "--cpu-compute", "fp32", "--threads", 2, "--device", "cpu").stdout, plain)
        gpu = harness.REPOSITORY / "examples" / "machines" / "t4.json"
        line = self.refusal(2, "plan", "--model", "opt-125m", "--machine", gpu, "--device", "cpu")
        self.assertIn("--device: the machine of --machine has a GPU", line)


class Arithmetic(harness.VerbTest):
    def generate(self, model, flags):
        source = harness.write_jsonl(self.folder / "in.jsonl", REQUESTS)
        return placements.run(self.binary, ["--model", model], source, self.folder, flags)

    def perplexity(self, *flags):
        text = self.folder / "text.txt"
        text.write_text(HELD_OUT.read_text(encoding="utf-8")[:20000], encoding="utf-8")
        return float(self.run_verb("score", "--perplexity", text, "--quiet", *flags).stdout.split()[1])

    def no_resume_without(self, flags, always=()):
        source = harness.write_jsonl(self.folder / "in.jsonl", REQUESTS)
        words = ["--input", source, "--output", "out.jsonl", "--quiet", *always]
        self.run_verb("generate", *words, *flags)
        result = self.run_verb("generate", *words, "--resume", status=51)
        self.assertIn(b"not known as the output of this run", result.stderr)
        self.run_verb("generate", *words, "--resume", *flags)


class Bf16(Arithmetic):
    def test_the_same_bytes_for_every_placement_and_others_than_in_fp32(self):
        for model in placement_test.SMALL_MODELS:
            expected, report = self.generate(model, [*placements.BF16[0], *BF16])
            self.assertIn(report["machine"]["isa"], ("amx_bf16", "avx512_bf16"))
            self.assertNotEqual(expected, self.generate(model, placements.BF16[0])[0])
            for flags in placements.BF16[1:]:
                with self.subTest(model=model, flags=flags):
                    self.assertEqual(self.generate(model, [*flags, *BF16])[0], expected)

    def test_quality_is_that_of_fp32_within_half_a_percent(self):
        self.assertLess(abs(self.perplexity(*BF16) / self.perplexity() - 1.0), 0.005)

    def test_a_run_goes_on_only_with_what_it_began_with(self):
        self.no_resume_without(BF16)


class Int8(Arithmetic):
    def test_the_same_bytes_for_every_placement_and_others_than_in_fp32(self):
        model = placement_test.SMALL_MODELS[0]
        for bits in (8, 4):
            coded = ["--weight-bits", bits]
            expected, report = self.generate(model, [*placements.BF16[0], *coded, *INT8])
            self.assertIn(report["machine"]["isa"], ("amx_int8", "avx512_vnni_int8"))
            self.assertNotEqual(expected, self.generate(model, [*placements.BF16[0], *coded])[0])
            for flags in placements.BF16[1:]:
                with self.subTest(bits=bits, flags=flags):
                    self.assertEqual(self.generate(model, [*flags, *coded, *INT8])[0], expected)

    def test_quality_is_that_of_fp32_within_half_a_percent(self):
        for bits in (8, 4):
            with self.subTest(bits=bits):
                coded = ["--weight-bits", bits]
                self.assertLess(abs(self.perplexity(*coded, *INT8) / self.perplexity(*coded) - 1.0), 0.005)

    def test_a_run_goes_on_only_with_what_it_began_with(self):
        self.no_resume_without(INT8, ["--weight-bits", 8])

    def test_weights_of_16_bits_are_refused(self):
        for verb in (["plan"], ["score", "--perplexity", HELD_OUT]):
            line = self.refusal(2, *verb, *INT8)
            remedy = "give --cpu-compute bf16" if "AMX multiplies" in line else "leave it out"
            self.assertIn(f"and this run has none; {remedy}, or give --weight-bits 8 or 4", line)
            self.run_verb(*verb, *(BF16 if remedy.startswith("give") else []))

    def test_rates_of_a_file_are_for_codes_too(self):
        machine = json.loads((harness.REPOSITORY / "examples" / "machines" / "xeon-2-cores.json").read_text())
        file = self.folder / "machine.json"
        file.write_text(json.dumps(machine | {"isa": "avx512_vnni_int8"}))
        self.assertIn("whose rates --machine has", self.refusal(2, "plan", "--model", "opt-125m", "--machine", file))
        self.run_verb("plan", "--model", "opt-125m", "--weight-bits", 8, "--machine", file)
        words = ["search", "--model", "opt-125m", "--machine", file, "--allow-4bit"]
        self.assertIn("this run has none", self.refusal(2, *words, "--weight-bits", 16))
        policy = self.folder / "policy.json"
        self.run_verb(*words, "--output", policy)
        self.assertIn(json.loads(policy.read_text())["weight_bits"], (8, 4))


# Whether this machine can compute so.
def can(flags):
    probe = harness.run(harness.VerbTest.binary, ["plan", "--model", "opt-125m", "--weight-bits", 8, *flags])
    return b"needs a processor with" not in probe.stderr


def main():
    harness.VerbTest.binary = pathlib.Path(sys.argv.pop(1)).resolve()
    arithmetics = [name for name, flags in (("Bf16", BF16), ("Int8", INT8)) if can(flags)]
    print(f"this machine can compute in: {', '.join(arithmetics) or 'fp32 only'}")
    names = [] if any(not word.startswith("-") for word in sys.argv[1:]) else ["Refusals", *arithmetics]
    result = unittest.main(argv=[*sys.argv, *names], exit=False).result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(0 if arithmetics else 77)


if __name__ == "__main__":
    main()
