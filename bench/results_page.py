"""Writes bench/RESULTS.md from the results of bench/results.py."""

import importlib.metadata
import os
import pathlib
import platform
import re
import statistics
import subprocess

from result_cases import (CASES, COLLECTIVE_LINKS, COLLECTIVE_SIZES, COLLECTIVES, TUNER_LINKS,
                          TUNER_SIZES, links_named)

SYSTEMS = {"gloo": "Gloo", "mpi": "Open MPI, best algorithm", "gradwire": "gradwire"}


def first_match(pattern, text, otherwise="unknown"):
    found = re.search(pattern, text, re.MULTILINE)
    return found.group(1).strip() if found else otherwise


def version_line(command, pattern):
    try:
        done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except OSError:
        return "none"
    return first_match(pattern, done.stdout)


def torch_version():
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return "none"


def machine():
    """Returns the machine and versions that the figures depend on."""
    cpus = pathlib.Path("/proc/cpuinfo").read_text()
    memory = pathlib.Path("/proc/meminfo").read_text()
    return {
        "cpu": first_match(r"^model name\s*:\s*(.*)$", cpus, platform.machine()),
        "cores": os.cpu_count(),
        "memory_gb": round(int(first_match(r"^MemTotal:\s*(\d+)", memory, "0")) / 1e6),
        "kernel": platform.release().split("-")[0],
        "pytorch": torch_version(),
        "openmpi": version_line(["mpirun", "--version"], r"\(?Open MPI\)? (\S+)"),
    }


def size_text(size):
    for unit, name in ((1_000_000, "MB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def time_text(us):
    return f"{us:.3g} us" if us < 1000 else f"{us / 1000:.4g} ms"


def row_of(results, links, size, system, collective="all_reduce"):
    for row in results["links"].get(links, {"rows": []})["rows"]:
        if (row["system"], row["collective"]) != (system, collective):
            continue
        if row["bytes"] == size or collective != "all_reduce":
            return row
    return None


def share(row, limit):
    return 100 * row["busbw_gbps"] / limit


def value(case, row, gloo):
    """Returns the case's figure, or None."""
    if case.measure == "cpu":
        return row["cpu_seconds"] / gloo["cpu_seconds"] if gloo and gloo["cpu_seconds"] else None
    return {"us": row["median_us"], "ms": row["median_us"] / 1000,
            "share": share(row, links_named(case.links).limit_gbps or 1)}[case.measure]


def holds(case, row, gloo):
    measured = value(case, row, gloo)
    if measured is None:
        return None
    return measured >= case.target if case.measure == "share" else measured <= case.target


def cell(case, row, gloo):
    """Returns median, lowest and highest of the rounds, and the share of the limit if asked for."""
    if row is None:
        return "-"
    if case.measure == "cpu":
        ratio = value(case, row, gloo)
        return f"{row['cpu_seconds_per_gb']:.3g} s" + (f" ({ratio:.2f}x)" if ratio else "")
    text = time_text(row["median_us"])
    if "lowest_us" in row:
        text += f" ({time_text(row['lowest_us'])} - {time_text(row['highest_us'])})"
    if case.measure == "share":
        text = f"**{share(row, links_named(case.links).limit_gbps):.1f} %**, {text}"
    if row["system"] != "gloo" and row.get("algorithm"):
        text += f", {row['algorithm']}"
    return text


def target_text(case):
    return {"us": f"<= {case.target:g} us", "ms": f"<= {case.target:g} ms",
            "share": f">= {case.target:g} %", "cpu": f"<= {case.target:g}x Gloo's"}[case.measure]


def case_line(results, case):
    rows = {name: row_of(results, case.links, case.size, name) for name in SYSTEMS}
    name = "CPU seconds per GB, " if case.measure == "cpu" else ""
    title = f"{name}{size_text(case.size)}, {links_named(case.links).title}"
    verdict = "not measured"
    if rows["gradwire"]:
        kept = holds(case, rows["gradwire"], rows["gloo"])
        verdict = {True: "yes", False: "**no**", None: "not measured"}[kept]
    cells = [cell(case, rows[name], rows["gloo"]) for name in SYSTEMS]
    busy = results["links"].get(case.links, {}).get("busy")
    return [title, *cells, target_text(case), verdict, "-" if busy is None else f"{busy:.1f}"]


def markdown(head, lines):
    rows = [head, ["---"] * len(head), *lines]
    return "".join("| " + " | ".join(str(text) for text in row) + " |\n" for row in rows)


def tail_lines(results):
    """Returns rows with gradwire's p99 and median."""
    for case in CASES:
        row = row_of(results, case.links, case.size, "gradwire")
        if row and case.measure != "cpu":
            yield [f"{size_text(case.size)}, {links_named(case.links).title}",
                   time_text(row["median_us"]), time_text(row["p99_us"]),
                   f"{row['p99_us'] / row['median_us']:.2f}"]


def collective_lines(results):
    rows = results["links"].get("collectives", {"rows": []})["rows"]
    for collective in COLLECTIVES:
        cells = []
        ours = [r for r in rows if (r["collective"], r["system"]) == (collective, "gradwire")]
        for row in ours:
            other = [r for r in rows if r["system"] == "gloo" and r["bytes"] == row["bytes"]
                     and r["collective"] == collective]
            if other:
                ratio = other[0]["median_us"] / row["median_us"]
                mark = "" if ratio >= 1 else "**"
                cells.append(f"{time_text(row['median_us'])}, {mark}{ratio:.2f}x{mark}")
        if cells:
            yield [collective, *cells, *["-"] * (5 - len(cells))]


def tuner_medians(rows, links, size):
    """Returns {algorithm: median time over the rounds}, and the same of the tuner's own runs."""
    times = {}
    for row in rows:
        if (row["links"], row["bytes"]) == (links, size):
            name = "tuner" if row["what"] == "tuner" else row["algorithm"]
            times.setdefault(name, []).append(row["median_us"])
    return {name: statistics.median(values) for name, values in times.items()}


def tuner_lines(results):
    rows = results["links"].get("tuner", {"rows": []})["rows"]
    for links in TUNER_LINKS if rows else ():
        cells = []
        for size in TUNER_SIZES:
            times = tuner_medians(rows, links, size)
            tuner = times.pop("tuner", None)
            if tuner is None:
                cells.append("-")
                continue
            chosen = next(row["algorithm"] for row in reversed(rows) if row["what"] == "tuner"
                          and (row["links"], row["bytes"]) == (links, size))
            best = min(times, key=times.get)
            text = f"{chosen} {times[chosen] / times[best]:.2f}, {tuner / times[best]:.2f}"
            cells.append(text if chosen == best else f"{text} ({best} is best)")
        yield [links_named(links).title, *cells]


def many_ranks(results):
    rows = results["links"].get("64 ranks", {"rows": []})["rows"]
    return ", ".join(f"{size_text(r['bytes'])} {time_text(r['median_us'])}" for r in rows)


HEAD = """# Results

`make results` writes this page; the figures are in [results.json](results.json). To measure one
kind of link again:
`PYTHONPATH=tests/hosts .venv/bin/python bench/results.py --gradwire build/bin/gradwire --only 1g`.

- Machine: {cores} cores of {cpu}, {memory_gb} GB, Linux {kernel}; PyTorch {pytorch} (Gloo),
  Open MPI {openmpi}. Hosts are network namespaces on it, joined by veth links that `tc tbf` shapes,
  MTU 1500 (`tests/hosts/hosts.sh`): all hosts of a case share these cores. Plain TCP carries 95.6 %
  of such a link's rate. The last column is the number of cores busy with other work before a case
  began.
- Each case alternates gradwire, Gloo and Open MPI for {rounds} rounds. A figure is the median over
  rounds of the round's median; lowest and highest round in brackets. An operation's time is that of
  the slowest rank. Percentages are busbw of the configured rate, all of a host's links together.
- Open MPI: all algorithms of its `tuned` component are tried first, and the fastest for each size
  is measured. Between hosts `mpi_yield_when_idle` is set, because four of them share two cores.
- gradwire: the tuner's choice; after `gradwire probe` and, up to 16 MiB, `gradwire tune`.

"""


def table_or_not_measured(sizes, lines):
    lines = list(lines)
    return markdown(["", *map(size_text, sizes)], lines) if lines else "Not measured yet.\n"


def page(results, folder):
    rounds = max((links.get("rounds", 1) for links in results["links"].values()), default=1)
    text = HEAD.format(**results["machine"], rounds=rounds) if "machine" in results else ""
    head = ["all-reduce, float32", *SYSTEMS.values(), "target", "holds", "busy"]
    text += markdown(head, [case_line(results, case) for case in CASES])
    text += "\n## Tail latency\n\nMedian and 99th percentile of gradwire's rounds.\n\n"
    text += markdown(["case", "median", "p99", "ratio"], tail_lines(results))
    text += f"\n## Every collective\n\n{links_named(COLLECTIVE_LINKS).title}: median time, "
    text += "and Gloo's time divided by it.\n\n"
    text += table_or_not_measured(COLLECTIVE_SIZES, collective_lines(results))
    text += "\n## The tuner\n\nThe tuner's choice for an all-reduce, and its time divided by that "
    text += "of the fastest algorithm: first with both forced, alternating, then in separate runs "
    text += "with the tuner's choice.\n\n"
    text += table_or_not_measured(TUNER_SIZES, tuner_lines(results))
    if many_ranks(results):
        text += f"\n64 ranks on this machine, all-reduce: {many_ranks(results)}.\n"
    reasons = pathlib.Path(folder) / "REASONS.md"
    if reasons.exists():
        text += "\n" + reasons.read_text()
    return text
