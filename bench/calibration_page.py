"""Writes docs/accuracy.md and its plot from the results of bench/calibration.py."""

import math
import statistics


def results(known):
    """Returns (network, case, predicted, measured) of all measured cases, in ms."""
    found = []
    for network, entry in known.get("networks", {}).items():
        for case, times in entry.get("cases", {}).items():
            if "measured_ms" in times:
                found.append((network, case, times["predicted_ms"], times["measured_ms"]))
    return found


def errors(found):
    return [abs(predicted / measured - 1) for _, _, predicted, measured in found]


def percentile(values, share):
    """Returns the smallest value that is at least as large as `share` of all values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def is_step(case):
    return " ms, " in case


def figures(found):
    """Returns a table row's figures for some results."""
    if not found:
        return "0 | - | - | -"
    e = errors(found)
    return (f"{len(e)} | {100 * statistics.median(e):.1f} % | {100 * percentile(e, 0.95):.1f} % | "
            f"{100 * max(e):.1f} %")


SIDE, MARGIN = 420, 56


def scatter(found):
    """Plots measured against predicted times, both logarithmic, as SVG. Dashed: 8 % off."""
    times = [t for _, _, predicted, measured in found for t in (predicted, measured)]
    low = 10 ** math.floor(math.log10(min(times)))
    high = 10 ** math.ceil(math.log10(max(times)))
    span = math.log10(high / low)

    def at(value):
        return SIDE * math.log10(value / low) / span

    def point(x, y):
        return MARGIN + at(x), MARGIN + SIDE - at(y)

    def line(factor, style):
        ends = [max(low, low / factor), min(high, high / factor)]
        (x1, y1), (x2, y2) = (point(x, x * factor) for x in ends)
        return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {style}/>'

    size = SIDE + 2 * MARGIN
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{size}" height="{size}" '
             f'viewBox="0 0 {size} {size}" font-family="sans-serif" font-size="12">',
             f'<rect width="{size}" height="{size}" fill="white"/>',
             f'<rect x="{MARGIN}" y="{MARGIN}" width="{SIDE}" height="{SIDE}" fill="none" '
             'stroke="#888"/>']
    decade = low
    while decade <= high * 1.001:
        x, y = point(decade, decade)
        label = f"{decade:g} ms"
        parts.append(f'<text x="{x:.1f}" y="{MARGIN + SIDE + 18}" text-anchor="middle">{label}'
                     '</text>')
        parts.append(f'<text x="{MARGIN - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
        decade *= 10
    parts += [line(1, 'stroke="#333"'), line(1.08, 'stroke="#999" stroke-dasharray="4 3"'),
              line(1 / 1.08, 'stroke="#999" stroke-dasharray="4 3"')]
    for network, case, predicted, measured in found:
        x, y = point(predicted, measured)
        colour = "#1f6fb4" if is_step(case) else "#d9822b"
        title = f"{network}: {case}: {predicted:.1f} ms predicted, {measured:.1f} ms measured"
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}" fill-opacity="0.7">'
                     f'<title>{title}</title></circle>')
    middle = MARGIN + SIDE / 2
    parts += [f'<text x="{middle}" y="{size - 12}" text-anchor="middle">predicted</text>',
              f'<text x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})">'
              'measured</text>',
              f'<circle cx="{MARGIN + 14}" cy="{MARGIN + 16}" r="4" fill="#1f6fb4"/>',
              f'<text x="{MARGIN + 24}" y="{MARGIN + 20}">training steps</text>',
              f'<circle cx="{MARGIN + 14}" cy="{MARGIN + 34}" r="4" fill="#d9822b"/>',
              f'<text x="{MARGIN + 24}" y="{MARGIN + 38}">operations</text>', "</svg>"]
    return "\n".join(parts) + "\n"


def table(found):
    lines = ["| network | what | predicted, ms | measured, ms | error |",
             "| --- | --- | --- | --- | --- |"]
    for network, case, predicted, measured in found:
        error = 100 * (predicted / measured - 1)
        lines.append(f"| {network} | {case} | {predicted:.1f} | {measured:.1f} | {error:+.1f} % |")
    return "\n".join(lines)


BEGIN, END = "<!-- bench/calibration.py writes from here -->", "<!-- to here -->"


def summary(found):
    steps = [one for one in found if is_step(one[1])]
    operations = [one for one in found if not is_step(one[1])]
    return "\n".join([
        "| | configurations | median error | 95th percentile | largest |",
        "| --- | --- | --- | --- | --- |",
        f"| all | {figures(found)} |",
        f"| training steps | {figures(steps)} |",
        f"| operations | {figures(operations)} |"])


def write_page(known, page):
    """Replaces the text between the two marks of the page, and writes the plot next to it."""
    found = results(known)
    if not found:
        return
    plot = page.with_suffix(".svg")
    plot.write_text(scatter(found))
    text = page.read_text() if page.exists() else f"{BEGIN}\n{END}\n"
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    page.write_text(f"{before}{BEGIN}\n\n{summary(found)}\n\n"
                    f"![Measured against predicted]({plot.name})\n\n{table(found)}\n\n{END}{after}")
    e = errors(found)
    print(f"{len(e)} configurations: median error {100 * statistics.median(e):.1f} %, 95th "
          f"percentile {100 * percentile(e, 0.95):.1f} %")
