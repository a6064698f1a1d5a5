"""GenerateTest: tests that run `spillway generate` into a folder of their own. Standard library only."""

import pathlib

import harness


class GenerateTest(harness.FolderTest):
    """A script sets `binary` before it runs them."""

    binary = pathlib.Path()

    def setUp(self):
        super().setUp()
        self.output = self.folder / "out.jsonl"

    def write(self, records, name="in.jsonl"):
        return harness.write_jsonl(self.folder / name, records)

    def skip_with_large_library(self):
        name = harness.large_library(self.binary)
        if name:
            self.skipTest(f"{name} needs more than the limit itself")

    def generate(self, source, *flags, status=0, **options):
        """A run into self.output that must end with `status`."""
        words = ["generate", "--input", source, "--output", self.output, *flags]
        result = harness.run(self.binary, words, cwd=self.folder, **options)
        self.assertEqual(result.status, status, result.stderr.decode(errors="replace"))
        return result

    def lines(self, records, *flags, **options):
        """The output lines of a run over `records`."""
        self.output.unlink(missing_ok=True)
        self.generate(self.write(records), "--quiet", *flags, **options)
        return harness.read_jsonl(self.output)

    def choices(self, records, *flags, **options):
        return [harness.choice(line) for line in self.lines(records, *flags, **options)]
