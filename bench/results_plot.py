"""The README's picture: bus bandwidth of all-reduces beside the peers, from bench/results.py."""

from result_cases import CASES, links_named
from results_page import row_of, share, size_text

SYSTEMS = {"gradwire": ("gradwire", "#1f6fb4"), "gloo": ("Gloo", "#d9822b"),
           "mpi": ("Open MPI, best algorithm", "#8f8f8f")}
WIDTH, LABELS, BARS, TOP = 720, 250, 450, 44  # Pixels.
BAR, GAP = 13, 12  # Height of a bar; space between two cases.


def text(x, y, content, anchor="start", extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{content}</text>'


def bar(y, percent, colour):
    length = BARS * percent / 100
    return [f'<rect x="{LABELS}" y="{y}" width="{length:.1f}" height="{BAR - 2}" fill="{colour}"/>',
            text(LABELS + length - 5, y + BAR - 4, f"{percent:.1f} %", "end",
                 ' font-size="10" fill="white"')]


def group(results, case, top):
    """Returns the bars of a case, of the systems that were measured, and their lower end."""
    links = links_named(case.links)
    rows = [(colour, row_of(results, case.links, case.size, name))
            for name, (_, colour) in SYSTEMS.items()]
    rows = [(colour, share(row, links.limit_gbps)) for colour, row in rows if row is not None]
    title = f"{size_text(case.size)}, {links.title.removesuffix(', one operation')}"
    parts = [text(LABELS - 10, top + BAR * len(rows) / 2 + 4, title, "end")]
    for index, (colour, percent) in enumerate(rows):
        parts += bar(top + BAR * index, percent, colour)
    return parts, top + BAR * len(rows) + GAP


def legend():
    parts, x = [], LABELS
    for name, colour in SYSTEMS.values():
        parts += [f'<rect x="{x}" y="12" width="12" height="12" fill="{colour}"/>',
                  text(x + 17, 22, name)]
        x += 40 + 7 * len(name)
    return parts


def picture(results):
    """Returns an SVG: a group of bars for each bandwidth that the page compares with the peers."""
    parts, y = legend(), TOP
    for case in CASES:
        if case.measure == "share" and row_of(results, case.links, case.size, "gradwire"):
            bars, y = group(results, case, y)
            parts += bars
    limit = LABELS + BARS
    parts += [f'<line x1="{limit}" y1="{TOP - 8}" x2="{limit}" y2="{y - GAP + 4}" stroke="#888" '
              'stroke-dasharray="4 3"/>',
              text(limit, y + 8, "busbw, in % of the links' rate", "end")]
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 20}" '
                      f'viewBox="0 0 {WIDTH} {y + 20}" font-family="sans-serif" font-size="12">',
                      f'<rect width="{WIDTH}" height="{y + 20}" fill="white"/>', *parts,
                      "</svg>"]) + "\n"
