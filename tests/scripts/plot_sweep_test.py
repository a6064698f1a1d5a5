"""scripts/plot_sweep.py as a process: what it reads, the page that it writes, and a sweep drawn by the command that the program
prints. Skips (77) where no Python has matplotlib.

  python3 plot_sweep_test.py path/to/spillway [unittest arguments]
"""

import base64
import csv
import html.parser
import io
import os
import pathlib
import re
import shlex
import subprocess
import sys
import unittest
import urllib.parse

from plot_sweep_case import FULL, H2O, RATES, REFUSED, SCRIPT, STUDY, Case, policy  # first: it looks for matplotlib

import harness
import matplotlib.colors
from PIL import Image
from sweep_plots import charts, points
from sweep_plots.theme import DARK, LIGHT

BINARY = pathlib.Path()
ODD = """<script>alert("1 & 2")</script> 'quoted' $x_$ 100 %"""


class Reading(Case):
    def test_a_line_is_a_point(self):
        ran, refused = self.points({"kv": "h2o 20 %", "speedup_over_full_kv": "1.5", **RATES}, REFUSED)
        self.assertEqual((ran.number, ran.kv, ran.fault, ran.block, ran.work), (1, "h2o 20 %", "", "32 x 3", "opt-125m, 8 + 4"))
        self.assertEqual((ran.tokens_per_s, ran.predicted_tokens_per_s, ran.speedup), (10.0, 11.0, 1.5))
        self.assertEqual(ran.roof, points.Roof("memory", 4.0, 2e9, 1e9, 1e12))
        self.assertEqual((refused.tokens_per_s, refused.fault, refused.roof), (None, "E-CPU-MEMORY no room", None))

    def test_what_is_no_table_of_a_sweep_is_refused_in_a_line(self):
        self.assertIn("results.csv: No such file", self.script(self.folder, status=1)[1])
        for text, message in (("", "no point of the sweep is finished"), ("a,b\n1,2\n", "has no column"),
                              ("\udcff", "is not the table")):
            (self.folder / "results.csv").write_bytes(text.encode("utf-8", "surrogateescape"))
            _, stderr = self.script(self.folder, status=1)
            self.assertIn(message, stderr)
            self.assertEqual(stderr.count("\n"), 1, stderr)
        for number in ("fast", "nan", "inf"):
            self.write({}, {"generated_tokens_per_s": number})
            self.assertIn("results.csv:3: generated_tokens_per_s", self.script(self.folder, status=1)[1])

    def test_reports_that_are_lost_are_counted(self):
        sweep = self.sweep({}, {}, {}, reports=[{"version": 1}])
        self.assertEqual(len(sweep.complaints), 1)
        self.assertIn("2 of 3 reports", sweep.complaints[0])
        (self.folder / "grid.toml").write_text("title = ")
        self.assertIn("grid.toml", points.read_sweep(self.folder).complaints[-1])


class PageParser(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.open, self.rows = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("img", "source", "meta"):
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    def text_of(self, tag):
        return [text for where, text in self.texts if where == tag]

    def pictures(self):
        """Pictures for light, then for dark backgrounds."""
        light = [attrs["src"] for tag, attrs in self.tags if tag == "img"]
        dark = [attrs["srcset"] for tag, attrs in self.tags if tag == "source"]
        return [[Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))).convert("RGB") for uri in uris]
                for uris in (light, dark)]


class Page(Case):
    def page(self, *words):
        stdout, _ = self.script(self.folder, *words)
        self.assertEqual(stdout.splitlines()[-1], str(self.folder / "index.html"))
        text = (self.folder / "index.html").read_text(encoding="utf-8")
        self.check_needs_nothing(text)
        return PageParser(text)

    def check_needs_nothing(self, text):
        """No script, and no address but pictures that are in the page, its own lines and the reports beside it."""
        written = re.sub(r"data:image/png;base64,[^\"]*", "", text)
        self.assertNotRegex(written, r"url\(|@import|https?:|//[a-z]")
        for tag, attrs in PageParser(text).tags:
            self.assertNotIn(tag, ("script", "link", "iframe", "object", "embed"))
            for name, value in attrs.items():
                self.assertFalse(name.startswith("on"), name)
                if name in ("src", "srcset"):
                    self.assertRegex(value, r"\Adata:image/png;base64,[A-Za-z0-9+/=]+\Z")
                elif name == "href":
                    self.assertRegex(value, r"\A(#p\d+|points/[\w.%-]+)\Z")

    def rows(self):
        report = {"policy": policy(FULL), "machine": {"name": "a machine"},
                  "sweep": {"program": "1.2.3 abc", "settings": {}, "command": ["spillway", "bench", "--gen-len=4", "a b"]}}
        h2o = report | {"policy": policy(H2O)}
        self.write({**RATES, "model_name": "tales-opt-8m"},
                   {"kv": "h2o 20 %", "generated_tokens_per_s": "30", "speedup_over_full_kv": "3", "model_name": "tales-opt-8m",
                    **RATES}, REFUSED, reports=[report, h2o, report])

    def test_it_has_every_chart_and_every_point(self):
        self.rows()
        found = self.page("--quality", STUDY)
        self.assertEqual(found.text_of("h1"), ["A title"])
        self.assertEqual(found.text_of("h2"), ["Throughput", "Speed-up over full KV", "Quality", "Predicted against measured",
                                               "Roofline", "All points"])
        self.assertEqual(found.text_of("p")[0], "3 points, 2 measured, 1 refused. On: a machine. Spillway 1.2.3.")
        self.assertEqual(found.rows, [
            ["#", "point", "KV", "state", "tokens/s", "predicted", "over full KV", "perplexity", "rows x batches", "limit"],
            ["1", "opt-125m, 8 + 4", "full", "measured", "10", "11", "", "36.9", "32 x 3", "memory"],
            ["2", "opt-125m, 8 + 4", "h2o 20 %", "measured", "30", "11", "3 x", "138 (+275 %)", "32 x 3", "memory"],
            ["3", "opt-125m, 8 + 4", "full", "refused", "E-CPU-MEMORY no room"]])
        hovers = [attrs["title"] for tag, attrs in found.tags if tag == "a" and attrs["href"] == "#p3"]
        self.assertEqual(hovers, ["opt-125m, 8 + 4, full: E-CPU-MEMORY no room"])
        self.assertIn(("a", {"href": "points/1.json", "title": "spillway bench --gen-len=4 'a b'"}), found.tags)
        self.assertTrue(any(STUDY.name in text for text in found.text_of("li")))

    def test_pictures_show_something_in_both_themes(self):
        self.rows()
        found = self.page("--quality", STUDY)
        files = ["throughput", "speedup", "quality", "predicted", "roofline"]
        for theme, images in zip((LIGHT, DARK), found.pictures()):
            self.assertEqual(len(images), len(files))
            for image, name in zip(images, files):
                colors = {color: count for count, color in image.getcolors(1 << 24)}
                page_color, series = (tuple(round(255 * value) for value in matplotlib.colors.to_rgb(color))
                                      for color in (theme.page, theme.series[1]))
                self.assertGreater(colors[page_color], 0.4 * image.width * image.height)
                self.assertGreater(colors[series], 50, name)
                if theme is LIGHT:
                    with Image.open(self.folder / f"{name}.png") as file:
                        self.assertEqual(file.convert("RGB").tobytes(), image.tobytes())

    def test_names_are_escaped_and_no_formulas(self):
        report = {"machine": {"disturbed": ODD}, "sweep": {"command": [ODD], "program": ODD, "settings": {}}, "policy": {}}
        self.write({"name": ODD, "kv": ODD, "machine_name": ODD, "model_name": ODD, "speedup_over_full_kv": "2", **RATES,
                    "roof": ODD}, REFUSED | {"name": ODD, "kv": "x\ny\x07", "error": ODD, "error_code": "E-X"}, title=ODD,
                   reports=[report, report])
        found = self.page()
        self.assertEqual(("".join(found.text_of("title")), "".join(found.text_of("h1"))), (ODD, ODD))
        self.assertEqual(found.rows[1][1:3], [ODD, ODD])
        self.assertEqual(found.rows[2][4], f"E-X {ODD}")
        self.assertTrue(any(ODD in attrs.get("title", "") for tag, attrs in found.tags))

    def test_a_disturbed_profile_is_said_first(self):
        report = {"machine": {"name": "a machine", "disturbed": "others took 20 % of the processor"}}
        self.write({}, {}, reports=[report, report])
        found = self.page()
        warning = [text for text in found.text_of("p") if "disturbed" in text]
        self.assertEqual(len(warning), 1)
        self.assertIn("a machine was disturbed (others took 20 % of the processor)", warning[0])
        self.assertIn(("p", {"class": "warning"}), found.tags)
        texts = [text for _, text in found.texts]
        self.assertLess(texts.index(warning[0]), texts.index("Throughput"))
        self.assertIn("others took 20 %", self.script(self.folder)[1])

    def test_pictures_may_go_elsewhere(self):
        self.write({})
        out = self.folder / "new" / "pictures"
        self.script(self.folder, "--output", out, "--dark")
        text = (out / "index.html").read_text()
        self.assertIn('href="../../points/1.json"', text)
        with Image.open(out / "throughput.png") as image:
            self.assertEqual("#{:02x}{:02x}{:02x}".format(*image.convert("RGB").getpixel((0, 0))), DARK.page)
        self.assertFalse((self.folder / "index.html").exists())


class Program(Case):
    GRID = """title = "Of this test"
threads = 1
num-requests = 2
gpu-batch-size = 2
prompt-len = 8
gen-len = [2, 5000]
kv-policy = ["full", "h2o"]
"""

    def sweep_and_draw(self, binary, out):
        """(the command that the program prints, the page that it draws)"""
        grid = self.folder / "grid.toml"
        grid.write_text(self.GRID)
        result = harness.run(binary, ["sweep", grid, "--output", out], cwd=self.folder)
        self.assertEqual(result.status, 21, result.stderr)
        last = result.stdout.decode().splitlines()[-1]
        self.assertTrue(last.startswith("  charts: python3 "), last)
        self.assertEqual(sorted(path.name for path in out.iterdir()), ["grid.toml", "points", "results.csv"])
        words = shlex.split(last.removeprefix("  charts: "))
        done = subprocess.run([sys.executable, *words[1:]], cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout.splitlines()[-1], str(out / "index.html"))
        return words, PageParser((out / "index.html").read_text())

    def test_the_command_that_a_sweep_prints_draws_it(self):
        out = self.folder / "it's a folder"
        words, found = self.sweep_and_draw(BINARY, out)
        self.assertEqual(words[1:], [str(SCRIPT), str(out)])
        self.assertEqual(found.text_of("h1"), ["Of this test"])
        with open(out / "results.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        for row, shown in zip(rows, found.rows[1:], strict=True):
            self.assertEqual(shown[:4], [row["point"], row["name"], row["kv"], row["status"]])
            if row["status"] == "refused":
                self.assertEqual(shown[4:], [f"{row['error_code']} {row['error']}"])
            else:
                self.assertEqual(shown[4], charts.short_number(float(row["generated_tokens_per_s"])))
        self.assertEqual([row["status"] for row in rows].count("refused"), 2)
        links = [(attrs["href"], attrs["title"]) for tag, attrs in found.tags if tag == "a" and attrs["href"][0] != "#"]
        self.assertEqual(len(links), 4)
        for link, command in links:
            self.assertTrue((out / urllib.parse.unquote(link)).exists(), link)
            self.assertTrue(command.startswith("spillway bench --gen-len="), command)

    def test_an_installed_program_brings_the_script(self):
        prefix = self.folder / "prefix"
        done = subprocess.run(["cmake", "--install", BINARY.parent, "--prefix", prefix], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        words, _ = self.sweep_and_draw(prefix / "bin" / "spillway", self.folder / "out")
        script = prefix / "share" / "spillway" / "plot_sweep.py"
        self.assertEqual(words[1], str(script))
        self.assertTrue(os.access(script, os.X_OK))
        self.assertEqual(list(prefix.rglob("__pycache__")), [])


if __name__ == "__main__":
    BINARY = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
