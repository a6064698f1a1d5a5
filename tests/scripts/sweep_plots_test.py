"""The parts of scripts/plot_sweep.py: charts as data, what is known of quality, colours, and what is drawn. Skips (77) where no
Python has matplotlib.

  python3 sweep_plots_test.py [unittest arguments]
"""

import io
import itertools
import json
import math
import unittest

from plot_sweep_case import FULL, H2O, RATES, REFUSED, STUDY, Case, policy  # first: it looks for matplotlib

import matplotlib.colors
from matplotlib.text import Text
from PIL import Image
from sweep_plots import charts, draw, quality, style
from sweep_plots.theme import DARK, LIGHT


class Charts(Case):
    def test_throughput_has_each_point_and_says_why_one_has_none(self):
        chart = charts.throughput(self.points(
            {"name": "a"}, {"name": "b"}, {"name": "a", "kv": "h2o 20 %", "generated_tokens_per_s": "1234.5"},
            REFUSED | {"name": "b", "kv": "h2o 20 %"}))
        self.assertEqual([(bar.group, bar.series, bar.value, bar.text, bar.point) for bar in chart.bars],
                         [("a", "full", 10.0, "10", 1), ("a", "h2o 20 %", 1234.5, "1234", 3), ("b", "full", 10.0, "10", 2),
                          ("b", "h2o 20 %", None, "h2o 20 %: refused, E-CPU-MEMORY no room", 4)])
        self.assertIn("no room", chart.bars[3].hover)
        self.assertIn("1234 tokens/s", chart.bars[1].hover)
        self.assertEqual(chart.x_label, "generated tokens per second")
        simulated = charts.throughput(self.points({"status": "simulated"}))
        self.assertEqual(simulated.x_label, "generated tokens per second, simulated")

    def test_speedup_is_that_of_the_fastest(self):
        rows = [{"speedup_over_full_kv": "1"}, {"kv": "h2o 20 %", "speedup_over_full_kv": "2.5"},
                {"kv": "h2o 20 %", "speedup_over_full_kv": "3"}, {"kv": "window", "speedup_over_full_kv": "0.5"},
                {"kv": "h2o 20 %", "speedup_over_full_kv": "4", "as-flexgen": "true"}]
        chart = charts.speedup(self.points(*rows))
        self.assertEqual([(bar.group, bar.series, bar.value, bar.text) for bar in chart.bars],
                         [("opt-125m, 8 + 4", "h2o 20 %", 3.0, "3.00 x"), ("opt-125m, 8 + 4", "window", 0.5, "0.50 x"),
                          ("opt-125m, 8 + 4, FlexGen's schedule", "h2o 20 %", 4.0, "4.00 x")])
        self.assertEqual(chart.mark, 1.0)
        two = charts.speedup(self.points(*rows[:3], rows[2] | {"machine_name": "b machine", "speedup_over_full_kv": "9"}))
        self.assertEqual([(bar.group, bar.value) for bar in two.bars],
                         [("opt-125m, 8 + 4, a machine", 3.0), ("opt-125m, 8 + 4, b machine", 9.0)])
        self.assertIsNone(charts.speedup(self.points({}, {"kv": "h2o 20 %"})))

    def test_predictions_are_of_what_was_measured(self):
        chart = charts.predicted(self.points({}, {"predicted_tokens_per_s": ""}, {"status": "simulated"}, REFUSED))
        self.assertEqual([(dot.x, dot.y, dot.series, dot.point) for dot in chart.dots], [(11.0, 10.0, "full", 1)])
        self.assertEqual(sorted(line.slope for line in chart.lines), [0.85, 1.0, 1.15])
        self.assertIsNone(charts.predicted(self.points({"status": "simulated"})))

    def test_the_roofline_has_a_line_for_each_level_and_machine(self):
        disk = {**RATES, "roof": "disk_read", "roof_bytes_per_s": "2e8"}
        chart = charts.roofline(self.points(RATES, disk | {"kv": "h2o 20 %"}, RATES | {"matmul_flops_per_s": "2e12"}))
        self.assertEqual([(dot.x, dot.y, dot.shape) for dot in chart.dots],
                         [(4.0, 2.0, "memory"), (4.0, 2.0, "disk_read"), (4.0, 2.0, "memory")])
        self.assertEqual([(line.label, line.slope, line.x_end, line.dashed) for line in chart.lines if line.slope],
                         [("memory 1 GB/s", 1.0, 2000.0, False), ("disk_read 0.2 GB/s", 0.2, 5000.0, True)])
        self.assertEqual([(line.label, line.y, line.x_begin) for line in chart.lines if line.y],
                         [("products 1000 GFLOP/s", 1000.0, 1000.0), ("products 2000 GFLOP/s", 2000.0, 2000.0)])
        self.assertIn("spillway profile", charts.roofline(self.points({})).caption)

    def test_the_full_cache_comes_first(self):
        self.assertEqual(charts.series_of(self.points({"kv": "h2o 20 %"}, {"kv": "full"}, {"kv": "window"})),
                         ["full", "h2o 20 %", "window"])

    def test_many_bars_take_several_pictures_of_one_scale(self):
        rows = [{"name": f"point {at}", "generated_tokens_per_s": str(at + 1)} for at in range(250)]
        parts = charts.pictures(charts.throughput(self.points(*rows)))
        self.assertEqual([name for name, _ in parts], ["throughput", "throughput-2", "throughput-3"])
        self.assertEqual([bar.point for _, part in parts for bar in part.bars], list(range(1, 251)))
        self.assertEqual({part.most for _, part in parts}, {250.0})

    def test_numbers_keep_three_digits(self):
        texts = {0.012345: "0.0123", 8.5: "8.5", 99.96: "100", 12345.6: "12346"}
        self.assertEqual([charts.short_number(value) for value in texts], list(texts.values()))
        ratios = {1.0093: "+0.93 %", 3.748: "+275 %", 0.98: "-2 %"}
        self.assertEqual([charts.signed_percent(ratio) for ratio in ratios], list(ratios.values()))


class Quality(Case):
    def points_of(self, *kvs):
        """Points of the bundled model, (name of the series, policy)."""
        reports = [{"policy": found} for _, found in kvs]
        return self.points(*({"kv": name, "model_name": "tales-opt-8m"} for name, _ in kvs), reports=reports)

    def chart(self, found, *files):
        return charts.quality(found, quality.QualityTable(files))

    def values(self, found, *files):
        return {bar.series: bar.value for bar in self.chart(found, *files).bars}

    def test_the_study_is_known_by_model_policy_and_bits(self):
        study = json.loads(STUDY.read_text())["found"]
        layers = [{"kept": {"frac": layer["kept_frac"]}} for layer in study["calibrated"]["h2o"]["on_known_text"]["layers"]]
        found = self.points_of(
            ("full", policy(FULL)), ("h2o 20 %", policy(H2O)),
            ("per layer", policy({"policy": "h2o", "layer_budgets": layers})),
            ("window 20 % + 4", policy({"policy": "window", "budget": {"kept": {"frac": 0.2}}, "num_sinks": 4})),
            ("4-bit", policy(H2O, kv_bits=4)), ("30 %", policy({"policy": "h2o", "budget": {"kept": {"frac": 0.3}}})))
        full = study["full"]["perplexity"]
        uniform = {name: next(at for at in study["uniform"][name] if at["kv_frac"] == 0.2) for name in study["uniform"]}
        self.assertEqual(self.values(found, STUDY), {
            "full": 1.0, "h2o 20 %": uniform["h2o"]["perplexity"] / full,
            "per layer": study["calibrated"]["h2o"]["perplexity"] / full,
            "window 20 % + 4": uniform["window + 4 sinks"]["perplexity"] / full, "4-bit": None, "30 %": None})
        texts = [bar.text for bar in self.chart(found, STUDY).bars]
        agreement = round(100 * uniform["h2o"]["next_token_agreement"])
        self.assertIn(f"perplexity {uniform['h2o']['perplexity']:.0f}, +275 %; {agreement} % of next tokens the same", texts)
        self.assertIn("30 %: not known", texts)
        other = self.points({"kv": "h2o 20 %", "model_name": "opt-125m"}, reports=[{"policy": policy(H2O)}])
        self.assertIsInstance(self.chart(other, STUDY), charts.NoChart)

    def test_scores_are_compared_with_the_full_cache_on_the_same_text(self):
        def score(name, kv, perplexity, num_tokens=100, **bits):
            return self.json_file(name, {"model": {"name": "tales-opt-8m"}, "policy": policy(kv, **bits),
                                         "score": {"perplexity": perplexity, "num_tokens": num_tokens}})

        found = self.points_of(("full", policy(FULL)), ("full 4", policy(FULL, weight_bits=4)), ("h2o 20 %", policy(H2O)))
        files = [score("4.json", FULL, 40.0, weight_bits=4), score("h2o.json", H2O, 48.0), score("full.json", FULL, 32.0)]
        self.assertEqual(self.values(found, *files), {"full": 1.0, "full 4": 1.25, "h2o 20 %": 1.5})
        alone = self.chart(found, files[1])
        self.assertEqual([bar.value for bar in alone.bars], [None] * 3)
        self.assertIn("perplexity 48", alone.bars[2].text)
        other_text = score("other.json", FULL, 16.0, num_tokens=99)
        self.assertIsNone(self.values(found, files[1], other_text)["h2o 20 %"])

    def test_the_first_file_counts(self):
        def calibration(name, perplexity):
            return self.json_file(name, {"model": {"name": "tales-opt-8m"}, "policy": policy(H2O),
                                         "calibration": {"perplexity_full": 10.0, "perplexity": perplexity}})

        files = [calibration("a.json", 11.0), calibration("b.json", 12.0)]
        self.assertEqual(self.values(self.points_of(("h2o 20 %", policy(H2O))), *files), {"h2o 20 %": 1.1})

    def test_files_of_other_things_are_refused_and_useless_ones_named(self):
        self.write({"kv": "h2o 20 %"}, reports=[{"policy": policy(H2O)}])
        for text, message in (("{", "is not JSON"), ("[]", "holds no perplexity"),
                              ('{"score": {"perplexity": 3}}', "not whole"),
                              ('{"model": {"name": "m"}, "policy": {}, "score": {"num_tokens": 1, "perplexity": null}}',
                               "not whole")):
            path = self.folder / "q.json"
            path.write_text(text)
            _, stderr = self.script(self.folder, "--quality", path, status=1)
            self.assertRegex(stderr, rf"\Aplot_sweep: --quality [^\n]*{message}[^\n]*\n\Z")
        _, stderr = self.script(self.folder, "--quality", STUDY)
        self.assertIn("is of tales-opt-8m, with policies that no point of this sweep has", stderr)

    def test_nothing_is_said_where_all_kv_is_kept(self):
        self.assertIsNone(self.chart(self.points_of(("full", policy(FULL))), STUDY))
        self.assertIn("--quality", self.chart(self.points_of(("h2o 20 %", policy(H2O)))).caption)

    def test_a_policy_file_says_what_calibrate_found(self):
        layers = {"policy": "h2o", "layer_budgets": [{"kept": {"frac": 0.3}}]}
        said = "spillway calibrate: m, loss of perplexity 0.93 % of at most 1.00 %"
        file = self.json_file("kv.json", {"version": 1, "kv": layers, "sources": [said]})
        report = {"policy": policy(layers), "sweep": {"settings": {"policy": str(file)}}}
        found = self.points({"kv": "h2o per layer"}, reports=[report])
        self.assertEqual(quality.calibrated_policies(found), [("h2o per layer", said)])
        self.json_file("kv.json", {"version": 1, "kv": H2O, "sources": [said]})  # another one by now
        self.assertEqual(quality.calibrated_policies(found), [])


# Severity 1 of Machado, Oliveira and Fernandes (2009), on linear RGB: eyes without one kind of cones.
EYES = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "no green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "no blue": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def linear(color):
    return [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
            for value in matplotlib.colors.to_rgb(color)]


def times(matrix, vector):
    return [sum(factor * value for factor, value in zip(row, vector)) for row in matrix]


def oklab(color, eye):
    """A color as it is seen, in a space where distances are differences that people see."""
    seen = [min(1.0, max(0.0, value)) for value in times(eye, linear(color))]
    cones = times(((0.4122214708, 0.5363325363, 0.0514459929), (0.2119034982, 0.6806995451, 0.1073969566),
                   (0.0883024619, 0.2817188376, 0.6299787005)), seen)
    return times(((0.2104542553, 0.7936177850, -0.0040720468), (1.9779984951, -2.4285922050, 0.4505937099),
                  (0.0259040371, 0.7827717662, -0.8086757660)), [value ** (1 / 3) for value in cones])


def contrast(first, second):
    """Contrast as WCAG defines it."""
    low, high = sorted(times(((0.2126, 0.7152, 0.0722),), linear(color))[0] for color in (first, second))
    return (high + 0.05) / (low + 0.05)


class Colours(unittest.TestCase):
    def test_any_two_series_differ_for_all_eyes(self):
        for theme in (LIGHT, DARK):
            for name, eye in EYES.items():
                for pair in itertools.combinations(theme.series, 2):
                    self.assertGreater(math.dist(*(oklab(color, eye) for color in pair)), 0.1, (name, pair))

    def test_series_and_text_stand_out_from_the_page(self):
        for theme in (LIGHT, DARK):
            for color in theme.series:
                self.assertGreaterEqual(contrast(color, theme.page), 3.0, color)
            for color in (theme.ink, theme.soft):
                self.assertGreaterEqual(contrast(color, theme.page), 4.5, color)

    def test_series_of_one_colour_are_filled_differently(self):
        looks = [style.filling(LIGHT, place) for place in range(18)]
        for first, second in itertools.combinations(looks, 2):
            self.assertNotEqual(first, second)


class Drawing(Case):
    def draw(self, chart, found, theme=LIGHT):
        return draw.draw(chart, theme, charts.series_of(found))

    def check_texts(self, picture):
        """Every text is inside the picture, and none lies on another."""
        canvas = picture.figure.canvas
        with matplotlib.rc_context(style.settings()):
            canvas.draw()
        found = []
        for text in picture.figure.findobj(Text):
            if text.get_visible() and text.get_text().strip():
                box = text.get_window_extent(canvas.get_renderer())
                self.assertTrue(box.x0 >= 0 and box.y0 >= 0 and box.x1 <= picture.figure.bbox.width
                                and box.y1 <= picture.figure.bbox.height, text)
                if text.get_rotation() in (0, 90):
                    found.append((box, text))
        for (box, text), (other, other_text) in itertools.combinations(found, 2):
            across = min(box.x1, other.x1) - max(box.x0, other.x0)
            down = min(box.y1, other.y1) - max(box.y0, other.y0)
            self.assertFalse(across > 1 and down > 1, (text, other_text))

    def rows(self, count):
        kvs = ["full", "h2o 20 %", "window 20 % + 4", "h2o 20 %, 4-bit KV, 4-bit weights"]
        long = ", gpu-batch-size 24, num-gpu-batches 12, cpu-memory 12GiB, percent 0 100 0 100 0 100, disk-space 1500GiB"
        for at in range(count):
            ratio = 1 + (at * 7 % count) / 3
            if at % 11 == 5:
                yield REFUSED | {"name": f"alone {at}{long}", "kv": kvs[at % 4], "error": "no room for it " * 20}
                continue
            yield {"name": f"opt-30b, 512 + {at // 4}{long}", "kv": kvs[at % 4], "generated_tokens_per_s": str(1000 * ratio),
                   "predicted_tokens_per_s": str(900 * ratio**1.1),
                   "speedup_over_full_kv": str(ratio), "prompt_tokens": str(2 * at),
                   **RATES, "decode_flops_per_byte": str(3 * ratio), "decode_flops_per_s": str(1e9 * ratio),
                   "roof": ["memory", "disk_read", "cpu_to_gpu"][at % 3], "roof_bytes_per_s": ["2e9", "1e9", "1.1e9"][at % 3]}

    def test_texts_are_legible_in_small_and_large_grids(self):
        for count in (1, 2, 60, 130):
            found = self.points(*self.rows(count))
            for chart in charts.all_charts(found, quality.QualityTable()):
                for name, part in [] if isinstance(chart, charts.NoChart) else charts.pictures(chart):
                    with self.subTest(count=count, chart=name):
                        picture = self.draw(part, found)
                        self.check_texts(picture)
                        (axes,) = [axes for axes in picture.figure.axes if axes.get_xlabel()]
                        self.assertGreater(axes.get_position().width, 0.5)
                        self.assertRegex(axes.get_xlabel(), "tokens per second|times the fastest run|FLOP per byte")

    def test_a_sweep_whose_points_are_all_refused_is_drawn(self):
        found = self.points(*([REFUSED] * 3))
        picture = self.draw(charts.throughput(found), found)
        self.check_texts(picture)
        texts = [text.get_text() for text in picture.figure.axes[1].texts]
        self.assertEqual(texts.count("full: refused, E-CPU-MEMORY no room"), 3)

    def test_bars_are_as_long_as_their_values_in_their_series_colour(self):
        found = self.points(*self.rows(20))
        chart = charts.throughput(found)
        picture = self.draw(chart, found)
        axes = picture.figure.axes[1]
        bars = sorted(axes.patches, key=lambda bar: bar.get_y())
        known = [bar for bar in chart.bars if bar.value is not None]
        self.assertEqual(len(known), 18)
        for drawn, bar in zip(bars, known, strict=True):
            self.assertAlmostEqual(drawn.get_width(), bar.value)
            place = charts.series_of(found).index(bar.series)
            self.assertEqual(drawn.get_facecolor(), matplotlib.colors.to_rgba(LIGHT.series[place]))
        texts = [text.get_text() for text in axes.texts]
        for bar in known:
            self.assertIn(charts.short_number(bar.value), texts)
        self.assertEqual(sum("refused, E-CPU-MEMORY" in text for text in texts), 2)
        self.assertEqual(sum(len(crosses.get_offsets()) for crosses in axes.collections), 2)
        self.assertEqual([text.get_text() for text in picture.figure.axes[0].texts], charts.series_of(found))

    def test_quality_is_a_ratio_on_a_logarithmic_axis(self):
        bars = [charts.Bar("m", "full", 1.0, "", "", 1), charts.Bar("m", "h2o", 3.5, "+250 %", "", 2),
                charts.Bar("m", "w", 0.99, "-1 %", "", 3), charts.Bar("m", "x", None, "not known", "", 4)]
        chart = charts.BarChart("quality", "Quality", "", "perplexity", bars, base=1.0, mark=1.0)
        picture = self.draw(chart, self.points({}, {"kv": "h2o"}, {"kv": "w"}, {"kv": "x"}))
        axes = picture.figure.axes[1]
        self.assertEqual(axes.get_xscale(), "log")
        self.assertEqual([round(bar.get_x() + bar.get_width(), 9) for bar in axes.patches], [1.0, 3.5, 0.99])
        self.assertIn("not known", [text.get_text() for text in axes.texts])
        self.check_texts(picture)

    def test_dots_and_lines_are_where_their_values_are(self):
        found = self.points(*self.rows(12))
        chart = charts.roofline(found)
        axes = self.draw(chart, found).figure.axes[1]
        drawn = sorted(tuple(offset) for dots in axes.collections for offset in dots.get_offsets().tolist())
        self.assertEqual(drawn, sorted((dot.x, dot.y) for dot in chart.dots))
        low, high = axes.get_xlim()
        for line in chart.lines:
            right = min(line.x_end, high)
            ends = [line.x_begin, line.y, high, line.y]
            if line.slope:
                ends = [low, line.slope * low, right, line.slope * right]
            self.assertTrue(any(all(map(math.isclose, ends, data.get_xydata().flatten())) for data in axes.lines), line)
        self.assertEqual({text.get_text() for text in axes.texts}, {line.label for line in chart.lines})

    def test_marks_lie_on_what_they_are_about(self):
        found = self.points(*self.rows(12))
        for chart in (charts.throughput(found), charts.roofline(found)):
            picture = self.draw(chart, found)
            self.assertEqual(sorted(mark.point for mark in picture.marks),
                             [point.number for point in found if chart.name == "throughput" or point.roof])
            image = Image.open(io.BytesIO(picture.png())).convert("RGB")
            for mark in picture.marks:
                box = [mark.left * image.width, mark.top * image.height, (mark.left + mark.width) * image.width,
                       (mark.top + mark.height) * image.height]
                seen = {color for _, color in image.crop([round(side) for side in box]).getcolors(1 << 20)}
                series = charts.series_of(found).index(found[mark.point - 1].kv)
                color = tuple(round(255 * value) for value in matplotlib.colors.to_rgb(LIGHT.series[series]))
                self.assertIn(color, seen, mark)


if __name__ == "__main__":
    unittest.main(verbosity=2)
