"""The tables of bench/learning.py."""

import statistics


def mean_and_deviation(values):
    """Returns mean and sample deviation, which is None for a single value."""
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return statistics.mean(values), deviation


def with_deviation(mean, deviation):
    if deviation is None:
        return f"{mean:.3f}"
    return f"{mean:.3f} ± {deviation:.3f}"


def distance(model, mean, reference):
    """Returns how much worse than float32, in float32's deviations."""
    best, deviation = reference
    if not deviation:
        return ""
    worse = (best - mean if model.higher_is_better else mean - best) / deviation
    text = f"{worse:+.1f}"
    return f"**{text}**" if worse <= 1 else text


def bytes_text(count):
    for unit in ("B", "kB", "MB"):
        if count < 1000 or unit == "MB":
            return f"{count:.3g} {unit}"
        count /= 1000


def row(model, variant, runs, reference, reference_bytes):
    mean, deviation = mean_and_deviation([model.scale * run[model.measure] for run in runs])
    sent = statistics.mean(run["sent_bytes_per_step"] for run in runs)
    cells = [f"`{variant.name}`", variant.title, with_deviation(mean, deviation),
             "" if variant.name == "fp32" else distance(model, mean, reference),
             bytes_text(sent), f"{reference_bytes / sent:.1f}", str(len(runs))]
    return "| " + " | ".join(cells) + " |"


def table(model, variants, runs_of):
    """Markdown; nothing if float32, which the others are compared with, has not been run."""
    runs = {variant.name: runs_of(model, variant) for variant in variants}
    if not runs["fp32"]:
        return ""
    reference = mean_and_deviation([model.scale * run[model.measure] for run in runs["fp32"]])
    reference_bytes = statistics.mean(run["sent_bytes_per_step"] for run in runs["fp32"])
    lines = [f"**{model.title}**", "",
             f"| variant | | {model.unit} | worse by | a rank sends a step | times fewer | seeds |",
             "| --- | --- | --- | --- | --- | --- | --- |"]
    lines += [row(model, variant, runs[variant.name], reference, reference_bytes)
              for variant in variants if runs[variant.name]]
    return "\n".join(lines) + "\n"


def tables(models, variants, runs_of):
    return "\n".join(filter(None, (table(model, variants, runs_of) for model in models)))
