"""The README's table of all-reduces, from the results of bench/results.py."""

import re

from result_cases import README, links_named
from results_page import markdown, row_of, share, size_text, time_text

SYSTEMS = {"gradwire": "gradwire", "gloo": "Gloo", "mpi": "Open MPI, best algorithm"}
BEGIN = "<!-- measured by make results -->\n"
END = "<!-- end of measured -->\n"


def cell(case, row):
    if row is None:
        return "-"
    if case.measure == "share":
        return f"{share(row, links_named(case.links).limit_gbps):.1f} %"
    return time_text(row["median_us"])


def line(results, case):
    rows = (row_of(results, case.links, case.size, name) for name in SYSTEMS)
    title = f"{size_text(case.size)}, {links_named(case.links).title}"
    return [title, *(cell(case, row) for row in rows)]


def table(results):
    return markdown(["", *SYSTEMS.values()], [line(results, case) for case in README])


def with_table(readme, results):
    """Returns the README's text with the table of these results between its marks."""
    parts = re.fullmatch(f"(.*{BEGIN}).*({END}.*)", readme, re.DOTALL)
    if parts is None:
        raise ValueError(f"README.md lacks the line {BEGIN.strip()!r} or {END.strip()!r}")
    return f"{parts.group(1)}\n{table(results)}\n{parts.group(2)}"
