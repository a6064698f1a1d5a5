"""scripts/check_docs.py on a small tree of its own, in which everything is right, and with one fault planted at a time.
Standard library only.

  python3 check_docs_test.py [unittest arguments]
"""

import pathlib
import shutil
import subprocess
import sys
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests/cli"))

import harness  # noqa: E402

README = """# Title

`src/main.cc`, `Engine::RunBlock`, `BlockBuilder`, `src/*.cc`, `SPILLWAY_MAX_TOKENS`
[verbs](docs/verbs.md), [a heading](docs/verbs.md#one-verb), [elsewhere](https://example.org/x.md)
```
scripts/good.sh
spillway generate --max-tokens 3
cmake --preset release
```
"""
FLAGS = """
Flag Value(std::string name);
Flag Switch(std::string name);
Flag Integer(std::string name);
constexpr std::array kVerbs = {VerbRow{"generate", Verb::kGenerate, "help"}};
Value("max-tokens", "N", "help", nullptr);
Switch(
    "quiet", "help", nullptr);
{"percent", FlagKind::kValue, "N", "help", nullptr, 6};
"""
GOOD = {
    "README.md": README,
    "CONTRIBUTING.md": "# Contributing\n",
    "CHANGELOG.md": "# Changes\n",
    "docs/verbs.md": "# Verbs\n\n## One verb\n\n`generate`: `--max-tokens N`, `--quiet`, `--percent`\n",
    "docs/formats.md": "# Formats\n\n`E-FLAG`\n",
    "src/main.cc": "// The words of docs/formats.md, and a part of docs/verbs.md, \"One\n// verb\", over two lines.\n",
    "src/config/flags.cc": FLAGS,
    "src/base/error.cc": 'CodeRow{ErrorCode::kFlag, "E-FLAG", 2},\n',
    "src/run/engine.h": "class Engine { void RunBlock(); };\nclass BlockBuilder {};\n",
    "tests/a_test.py": '"""As docs/verbs.md has it."""\nTEXT = "[x](nowhere.md)"\n',
    "tests/part/CMakeLists.txt": "# Beside this file: NOTES.md\n",
    "tests/part/NOTES.md": "# Notes\n",
    "scripts/good.sh": "#!/bin/sh\n",
}


class CheckDocsTest(harness.FolderTest):
    def setUp(self):
        super().setUp()
        for name, text in GOOD.items():
            self.write(name, text)
        (self.folder / "scripts/good.sh").chmod(0o755)
        shutil.copy(REPOSITORY / "scripts/check_docs.py", self.folder / "scripts")

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def check(self, *pages):
        """Exit status, and what is complained of."""
        command = [sys.executable, "-B", self.folder / "scripts/check_docs.py", *pages]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        return done.returncode, done.stdout.splitlines()

    def assert_found(self, *lines):
        self.assertEqual(self.check(), (1, list(lines)))

    def test_a_tree_without_faults_passes(self):
        self.assertEqual(self.check(), (0, []))

    def test_names_that_are_not_there(self):
        for text, fault in {
            "[x](nowhere.md)": "link to nowhere.md",
            "[x](#no-heading)": "heading #no-heading",
            "[x](docs/verbs.md#another-verb)": "heading docs/verbs.md#another-verb",
            "`src/no_such_file.cc`": "path src/no_such_file.cc",
            "`src/*.rs`": "path src/*.rs",
            "`docs/none.md`": "path docs/none.md",
            "`--max-token 3`": "flag --max-token",
            "```\nspillway juggle\n```": "verb juggle",
            "`Engine::NoSuchCall`": "identifier Engine::NoSuchCall",
            "`BlockBreaker`": "identifier BlockBreaker",
            "`SPILLWAY_MIN_TOKENS`": "identifier SPILLWAY_MIN_TOKENS",
        }.items():
            with self.subTest(fault):
                self.write("README.md", README + text + "\n")
                self.assert_found(f"README.md: no such {fault}")

    def test_each_fault_of_a_page_is_reported_once(self):
        text = "[x](nowhere.md) `src/no_such_file.cc` `Engine::NoSuchCall` `src/no_such_file.cc`\n"
        self.write("docs/page.md", text + "```\nspillway juggle --modell DIR\n```\n")
        kinds = ["link to nowhere.md", "path src/no_such_file.cc", "flag --modell", "verb juggle"]
        expected = [f"docs/page.md: no such {kind}" for kind in [*kinds, "identifier Engine::NoSuchCall"]]
        self.assertEqual(self.check(), (1, expected))
        self.assertEqual(self.check(self.folder / "docs/page.md"), (1, expected))
        self.assertEqual(self.check(self.folder / "README.md"), (0, []))

    def test_links_of_a_page_begin_at_its_folder(self):
        self.write("docs/page.md", "[x](verbs.md) [y](../README.md) [z](docs/verbs.md)\n")
        self.assert_found("docs/page.md: no such link to docs/verbs.md")

    def test_a_script_that_cannot_be_run(self):
        (self.folder / "scripts/good.sh").chmod(0o644)
        self.assert_found("README.md: no such executable command scripts/good.sh")

    def test_comments_that_cite_what_is_not_there(self):
        for name, text, fault in [
            ("src/main.cc", "int x;  // As in design.md\n", "document design.md"),
            ("include/a.h", '// See docs/verbs.md,\n// "Two\n// verbs".\n', 'heading "Two verbs" in docs/verbs.md'),
            ("kernels/a.cu", "// docs/none.md\n", "document docs/none.md"),
            ("policies/CMakeLists.txt", "# NOTES.md\n", "document NOTES.md"),
            ("tests/b_test.py", "# none.md\n", "document none.md"),
            ("tests/b_test.py", 'def f():\n    """none.md"""\n', "document none.md"),
        ]:
            with self.subTest(fault):
                self.write(name, text)
                self.assert_found(f"{name}: no such {fault}")
                self.write(name, GOOD.get(name, ""))

    def test_flags_verbs_and_codes_without_a_description(self):
        self.write("src/config/flags.cc", FLAGS + 'Integer("top-k", "help", 0, 1);\nVerbRow{"score", Verb::kScore, "x"},\n')
        self.write("src/base/error.cc", '"E-FLAG", "E-IO"\n')
        self.assert_found(
            "docs/verbs.md: leaves out --top-k", "docs/verbs.md: leaves out score", "docs/formats.md: leaves out E-IO")

    def test_flags_of_a_kind_that_is_new(self):
        self.write("src/config/flags.cc", FLAGS + 'Flag Real(std::string name);\nReal("top-p", "help");\n')
        self.assert_found("docs/verbs.md: leaves out --top-p")

    def test_the_beginning_of_another_flag_is_no_description(self):
        self.write("src/config/flags.cc", FLAGS + 'Value("max", "N", "help", nullptr);\n')
        self.assert_found("docs/verbs.md: leaves out --max")

    def test_a_readme_that_is_too_long(self):
        num_lines = len(README.splitlines())
        self.write("README.md", README + "\n" * (150 - num_lines))
        self.assertEqual(self.check(), (0, []))
        self.write("README.md", README + "\n" * (151 - num_lines))
        self.assert_found("README.md: 151 lines, more than 150")


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main()
