"""Measured figures in the documents must be those of bench/results.json."""

import json
import sys

from tree import ROOT, read

sys.path.insert(0, str(ROOT / "bench"))
import readme_table  # noqa: E402
import results_page  # noqa: E402
import results_plot  # noqa: E402


def differences(path, written, made):
    """Yields (line, message) for the first line that differs from the generated one."""
    lines, others = written.splitlines(), made.splitlines()
    for number in range(max(len(lines), len(others))):
        if lines[number:number + 1] != others[number:number + 1]:
            yield number + 1, f"{path} is not what bench/results.py --page makes of the results"
            return


def violations():
    results = json.loads(read("bench/results.json"))
    readme = read("README.md")
    for path, written, made in (
            ("bench/RESULTS.md", read("bench/RESULTS.md"),
             results_page.page(results, ROOT / "bench")),
            ("README.md", readme, readme_table.with_table(readme, results)),
            ("docs/busbw.svg", read("docs/busbw.svg"), results_plot.picture(results))):
        for line, what in differences(path, written, made):
            yield f"{path}:{line}: {what}"
