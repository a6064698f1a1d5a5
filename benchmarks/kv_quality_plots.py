"""The pictures of kv_quality.py: figures by file name, drawn from the values in kv_quality.json."""

COLORS = {"h2o": "tab:blue", "window": "tab:red", "window + 4 sinks": "tab:orange"}


def load_pyplot():
    """matplotlib.pyplot; None where matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")  # no display is needed
    import matplotlib.pyplot

    return matplotlib.pyplot


def draw_all(pyplot, result):
    figures = {
        "kv_quality.png": budget_figure(pyplot, result["found"]),
        "kv_layers.png": layer_figure(pyplot, result["found"]["calibrated"]),
    }
    if result["attention_mass"]:
        figures["attention_mass.png"] = mass_figure(pyplot, result["attention_mass"])
    return figures


def percent_axis(axes, shares):
    axes.set_xscale("log")
    axes.set_xticks(shares, [f"{100 * share:g} %" for share in shares])
    axes.minorticks_off()
    axes.grid(alpha=0.3)


def budget_figure(pyplot, found):
    figure, panels = pyplot.subplots(1, 2, figsize=(12, 5.5), layout="constrained")
    values = {"perplexity": 1.0, "next_token_agreement": 100.0}
    for axes, (value, scale) in zip(panels, values.items()):
        for name, points in found["uniform"].items():
            line = [scale * point[value] for point in points]
            axes.plot([point["kv_frac"] for point in points], line, "o-", color=COLORS[name], label=f"{name}, uniform")
        for name, point in found["calibrated"].items():
            axes.plot(point["kv_frac"], scale * point[value], "*", color=COLORS[name], markersize=15,
                      markeredgecolor="black", label=f"{name}, calibrated per layer")
        percent_axis(axes, [point["kv_frac"] for point in points])
        axes.set_xlabel("KV kept")
    panels[0].axhline(found["full"]["perplexity"], color="gray", linestyle="--", label="full cache")
    panels[0].set_yscale("log")
    ticks = [tick for tick in (30, 40, 60, 100, 200, 400, 1000, 2000, 5000) if tick <= panels[0].get_ylim()[1]]
    panels[0].set_yticks(ticks, ticks)
    panels[0].minorticks_off()
    panels[0].set_title("Perplexity (lower is better)")
    panels[1].set_title("Next-token agreement with the full cache, %")
    figure.get_layout_engine().set(rect=(0, 0.1, 1, 0.9))  # room for the legend
    figure.legend(*panels[0].get_legend_handles_labels(), loc="lower center", ncols=4)
    return figure


def layer_figure(pyplot, calibrated):
    figure, (alone, kept) = pyplot.subplots(2, 1, figsize=(8, 7), sharex=True, layout="constrained")
    width = 0.8 / len(calibrated)
    for place, (name, point) in enumerate(calibrated.items()):
        layers = point["on_known_text"]["layers"]
        at = [index + (place - (len(calibrated) - 1) / 2) * width for index in range(len(layers))]
        # A bar stands on 1, no loss; a log scale has no zero.
        ratios = point["perplexity_ratio_alone_at_20"]
        alone.bar(at, [ratio - 1 for ratio in ratios], width, bottom=1, color=COLORS[name], label=name)
        kept.bar(at, [100 * layer["kept_frac"] for layer in layers], width, color=COLORS[name],
                 label=f"{name}: {100 * point['kv_frac']:.0f} % of all KV")
    alone.set_yscale("log")
    ticks = [tick for tick in (1, 1.2, 1.5, 2, 3, 5, 10, 20, 50) if tick <= 1.2 * alone.get_ylim()[1]]
    alone.set_yticks(ticks, [f"x {tick}" for tick in ticks])
    alone.set_ylim(bottom=0.95)
    alone.minorticks_off()
    alone.set_title("Perplexity when one layer alone keeps 20 % of its KV")
    kept.set_title("KV that each layer keeps after calibration, %")
    kept.set_xlabel("layer")
    kept.set_xticks(range(len(layers)))
    kept.set_ylim(0, 105)
    for axes in (alone, kept):
        axes.grid(axis="y", alpha=0.3)
        axes.set_axisbelow(True)
    alone.legend(fontsize=9)
    kept.legend(fontsize=9, loc="upper center", bbox_to_anchor=(0.62, 1.0))  # over the layers that keep little
    return figure


def mass_figure(pyplot, mass):
    figure, panels = pyplot.subplots(1, 2, figsize=(12, 5), sharey=True, layout="constrained")
    titles = {
        "own": "The tokens that each query attends to most",
        "kept": "The tokens that H2O would keep: half recent, half heavy",
    }
    for axes, (key, title) in zip(panels, titles.items()):
        for layer, line in enumerate(mass[key]):
            color = pyplot.get_cmap("viridis")(layer / max(1, len(mass[key]) - 1))
            axes.plot(mass["kept_frac"], [100 * share for share in line], "o-", markersize=3, color=color,
                      label=f"layer {layer}")
        percent_axis(axes, [share for share in mass["kept_frac"] if share not in (0.3, 0.6, 0.8)])
        axes.set_ylim(0, 102)
        axes.set_xlabel("share of the tokens")
        axes.set_title(title, fontsize=11)
    panels[0].set_ylabel("share of attention, %")
    panels[1].legend(fontsize=9, loc="lower right")
    return figure
