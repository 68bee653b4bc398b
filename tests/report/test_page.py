"""Pages of `gradwire report` in a browser: every chart is drawn, the figures are correct, the
console has no messages, and nothing is loaded from elsewhere.

usage: test_page.py GRADWIRE [unittest arguments]
"""

import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import unittest

import browser
import sample_runs

GRADWIRE = sys.argv.pop(1) if len(sys.argv) > 1 else "build/bin/gradwire"
RUNS = ["#0072b2", "#d55e00", "#009e73", "#e69f00", "#cc79a7", "#56b4e9", "#7d7d7d"]
CATEGORIES = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#aa3377", "#bbbbbb"]
NASTY = ("</script><script>document.title='x'</script>"
         "<img src=x onerror=\"document.title='y'\">&amp;")


def tables(node):
    """Returns each table as a list of rows of texts, the header first."""
    return [[[cell.text() for cell in row.children if isinstance(cell, browser.Node)]
             for row in table.all("tr")] for table in node.all("table")]


def by_run(table):
    """The overview with a line for each run: the page has a line for each figure of few runs."""
    return table if table[0][0] else [list(line) for line in zip(*table)]


def drawn(figure, color):
    """Returns the number of coordinates of each shape of that color: a legend's icon has 40, a bar
    about 8, a curve at least as many as it has points."""
    return [len(re.findall(r"[\d.]+", path.attributes["d"])) for path in figure.all("path")
            if color in (path.attributes.get("fill"), path.attributes.get("stroke"))]


class Page(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def report(self, *inputs, **more):
        page = self.folder / "page.html"
        done = subprocess.run([GRADWIRE, "report", *inputs, "-o", page, "--title", "A <title>"],
                              capture_output=True, text=True, check=False, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return page

    def shown(self, *inputs):
        dom, said = browser.open_page(self.report(*inputs))
        self.assertEqual(said, [])
        self.assert_all_drawn(dom)
        return dom

    def assert_all_drawn(self, dom):
        plots = [node for node in dom.all("div") if node.attributes.get("class") == "plot"]
        html = next(dom.all("html"))
        self.assertEqual(html.attributes.get("data-charts"), str(len(plots)))
        for plot in plots:
            shapes = [path for path in plot.all("path") if path.attributes.get("d")]
            self.assertGreater(len(shapes), 5, plot.attributes)
            self.assertTrue(plot.attributes.get("aria-label"))
            self.assertNotIn("NaN", " ".join(path.attributes["d"] for path in shapes))
            self.assertTrue([text for text in plot.all("text") if text.text().strip()])

    def section(self, dom, name):
        found = dom.by_id(name)
        self.assertEqual(len(found), 1, name)
        return found[0]

    def assert_shapes(self, dom):
        """The experiment's runs, each in its own color."""
        of = {name: list(self.section(dom, name).all("figure"))
              for name in ("loss", "epochs", "steps", "shares", "memory")}
        for i, color in enumerate(RUNS):
            self.assertGreater(max(drawn(of["loss"][0], color)), 300)
            self.assertEqual(len(drawn(of["epochs"][0], color)), 1)
            self.assertEqual(len(drawn(of["steps"][0], color)), 1)
            bins = tables(of["steps"][1 + i])[0][1:]
            self.assertEqual(len(drawn(of["steps"][1 + i], color)), len(bins))
        for figure in of["memory"][1:]:
            for color in CATEGORIES:
                self.assertGreater(max(drawn(figure, color)), 60, color)

    def test_the_experiment(self):
        folders = sample_runs.write(self.folder, sample_runs.EXPERIMENT)
        dom = self.shown(*folders, sample_runs.write_ladder(self.folder))
        self.assertEqual(dom.by_id("page")[0].children[0].text(), "A <title>")
        names = [run["name"] for run in sample_runs.EXPERIMENT]
        charts = {"loss": 3, "epochs": 1, "steps": 1 + len(names), "shares": 1,
                  "memory": 1 + 2 * len(names), "ladder": 1}
        for name, count in charts.items():
            figures = list(self.section(dom, name).all("figure"))
            self.assertEqual(len(figures), count, name)
            self.assertTrue(all(list(figure.all("table")) for figure in figures), name)
        self.assert_shapes(dom)
        overview = by_run(tables(self.section(dom, "overview"))[0])
        self.assertEqual([row[0] for row in overview[1:]], names)
        self.assertEqual(overview[3][:5], ["ddp-x4", "DDP x4", "4", "host-0, host-1", "300"])
        self.assertIn("Hosts: host-0 (ranks 0, 1), host-1 (ranks 2, 3)",
                      self.section(dom, "runs").text())
        self.assertEqual(overview[3][overview[0].index("of 2(P−1)G/P")], "1.000")

    def test_figures_are_those_of_the_records(self):
        folders = sample_runs.write(self.folder, sample_runs.EXPERIMENT[:3])
        dom = self.shown(*folders)
        for i, folder in enumerate(folders):
            record = json.loads((pathlib.Path(folder) / "run.json").read_text())
            epochs = tables(self.section(dom, "epochs"))[0][1 + i]
            quartiles = statistics.quantiles(record["epoch_s"], n=4, method="inclusive")
            for cell, expected in zip(epochs[2:], [min(record["epoch_s"]), *quartiles,
                                                   max(record["epoch_s"])]):
                self.assertRegex(cell, r"^[\d.]+ s$")
                self.assertAlmostEqual(float(cell[:-2]), expected, delta=0.005 * expected)
            bars = tables(self.section(dom, "steps"))[1 + i]
            beyond = re.search(r"(\d+) beyond", list(self.section(dom, "steps").all("figure"))
                               [1 + i].text())
            self.assertEqual(sum(int(row[2]) for row in bars[1:]) +
                             (int(beyond.group(1)) if beyond else 0), 300)
            losses = tables(self.section(dom, "loss"))[0][1 + i]
            self.assertAlmostEqual(float(losses[1]), record["steps"]["loss"][0], delta=0.01)
            self.assertEqual(losses[4], "0")  # All runs have the first run's losses.
            tests, rates = (table[1 + i] for table in tables(self.section(dom, "loss"))[1:])
            self.assertEqual(tests[1:], ["6", "0.46667", "0.46667", "300", "81.7 %"])
            self.assertEqual(rates[1:], ["0.0033333", "0.1", "0.1"])

    def test_ladder(self):
        dom = self.shown(sample_runs.write_ladder(self.folder))
        rows = tables(self.section(dom, "ladder"))[0]
        self.assertEqual(rows[1][:3], ["fp32, no overlap", "66.5 %", "70.0 %"])
        self.assertEqual(rows[4][:3], ["ddp: fp32", "81.0 %", "100.0 %"])
        self.assertFalse(dom.by_id("overview"))

    def test_one_run_without_memory(self):
        dom = self.shown(*sample_runs.write(self.folder, [
            dict(name="alone", strategy="1 rank", steps=3, record_memory=False)]))
        self.assertEqual(dom.by_id("memory"), [])
        self.assertEqual(len(list(self.section(dom, "steps").all("figure"))), 2)

    def test_twenty_runs(self):
        runs = [dict(name=f"a run with a long name, number {i}", strategy=f"DDP x{i}", ranks=i,
                     compute=0.05 * i) for i in range(1, 21)]
        dom = self.shown(*sample_runs.write(self.folder, runs))
        self.assertEqual(len(list(self.section(dom, "memory").all("figure"))), 41)
        self.assertIn("its own axes", self.section(dom, "steps").text())

    def test_text_of_users_is_text(self):
        path = sample_runs.write_ladder(self.folder, NASTY.replace("=", "-"))
        result, = sample_runs.write_federated(self.folder, {"federated": {}})
        dom = self.shown(*sample_runs.write(self.folder, [dict(name=NASTY, strategy=NASTY)]), path,
                         f"{NASTY.replace('=', '-')}={result}")
        self.assertEqual(next(dom.all("title")).text(), "A <title>")
        self.assertEqual(list(dom.all("img")), [])
        self.assertEqual(by_run(tables(self.section(dom, "overview"))[0])[1][:2],
                         [NASTY, NASTY])

    def test_staleness_is_shown_of_runs_with_servers(self):
        runs = [dict(name="plain", strategy="DDP x4", ranks=4),
                dict(name="loose", strategy="4 servers, async x4", ranks=4)]
        folders = sample_runs.write(self.folder, runs)
        path = pathlib.Path(folders[1]) / "run.json"
        record = json.loads(path.read_text())
        record["summary"]["staleness"] = {"mean": 2.998, "p50": 3, "p99": 7, "max": 9,
                                          "rate": 0.25, "late": 0.125, "busy": 0.5,
                                          "by_worker": {"mean": [2.9, 3.1], "max": [8, 9]},
                                          "by_unit": {"mean": [2.998], "max": [9]},
                                          "predicted": {"mean": 3, "p99": 6, "late": 0}}
        path.write_text(json.dumps(record))
        dom = self.shown(*folders)
        overview = by_run(tables(self.section(dom, "overview"))[0])
        at = overview[0].index("staleness, updates")
        self.assertEqual(overview[2][at], "mean 3.00, 99 % up to 7, at most 9")
        self.assertEqual(overview[2][at + 1:at + 5],
                         ["mean 3.00, 99 % up to 6", "0.250", "12.5 %", "50.0 %"])
        self.assertEqual(overview[1][at], "–")
        parts = tables(self.section(dom, "staleness"))[0]
        self.assertEqual([row[1:] for row in parts[1:]],
                         [["worker 0", "2.90", "8"], ["worker 1", "3.10", "9"],
                          ["unit 0", "3.00", "9"]])

    def test_federated_runs(self):
        paths = sample_runs.write_federated(self.folder, {
            "simulated": {}, "served": dict(seed=2, tested=False, classes=False)})
        dom = self.shown(*sample_runs.write(self.folder, sample_runs.EXPERIMENT[:1]), *paths,
                         sample_runs.write_ladder(self.folder))
        of = {name: list(self.section(dom, name).all("figure"))
              for name in ("rounds", "participation", "client-accuracy", "client-cost")}
        self.assertEqual([len(figures) for figures in of.values()], [5, 3, 3, 7])
        self.assertTrue(all(list(figure.all("table")) for part in of.values() for figure in part))
        overview = by_run(tables(self.section(dom, "federated"))[0])
        self.assertEqual(overview[1], ["simulated", "30", "36", "4", "1,000 s", "88.0 %", "0.35",
                                       "60 MiB", "120 MiB", "0.85", "61.0 %", "12.5 %"])
        self.assertEqual(overview[2][5:7] + overview[2][10:], ["–"] * 4)
        accuracy = tables(of["rounds"][0])[0]
        self.assertEqual(accuracy[1:], [["simulated", "36", "10.0 %", "88.0 %", "88.0 %", "40"]])
        self.assertGreater(max(drawn(of["rounds"][0], RUNS[1])), 30)  # After the other run's color.
        self.assertFalse(drawn(of["rounds"][0], RUNS[2]))
        groups = tables(of["participation"][1])[0]
        self.assertEqual([row[0] for row in groups[1:]],
                         ["20–160", "180–300", "320–440", "460–600"])
        self.assertEqual([row[1] for row in groups[1:]], ["8", "7", "7", "8"])
        bars = tables(of["client-accuracy"][1])[0]
        self.assertEqual(sum(int(row[2]) for row in bars[1:]), 30)
        self.assertEqual(tables(of["client-accuracy"][2])[0],
                         [["run", "slow", "middle", "fast"],
                          ["simulated", "50.0 %", "60.0 %", "70.0 %"]])
        self.assertEqual(tables(of["client-cost"][0])[0][1], ["simulated", "150 s", "60 s", "20 s"])
        self.assertEqual(tables(of["client-cost"][3])[0][1], ["slow", "10", "50.0 %", "25.0 %"])
        self.assertIn(f"served – {paths[1]}", self.section(dom, "runs").text())

    def test_federated_runs_without_accuracies(self):
        dom = self.shown(*sample_runs.write_federated(self.folder, {
            "long": dict(rounds=1200, clients=4, tested=False), "short": dict(
                rounds=1, clients=1, tested=False, classes=False)}))
        self.assertEqual(dom.by_id("client-accuracy"), [])
        self.assertEqual(dom.by_id("overview"), [])
        rounds = list(self.section(dom, "rounds").all("figure"))
        self.assertEqual(len(rounds), 3)  # No accuracy, no loss.
        figures = tables(self.section(dom, "federated"))[0]
        self.assertEqual([row[0] for row in figures[1:]], [
            "clients", "rounds committed", "rounds abandoned", "time of the rounds",
            "up, all clients", "down, all clients", "Jain's index"])

    def test_losses_that_are_not_finite(self):
        record = sample_runs.run("diverged", "DDP x2", ranks=2)
        record["steps"]["loss"][100:] = [None] * 200
        record["summary"]["test_loss"] = None
        record["tests"]["loss"][1:] = [None] * 5
        path = self.folder / "run.json"
        path.write_text(json.dumps(record))
        dom = self.shown(path)
        losses, tests, _ = tables(self.section(dom, "loss"))
        self.assertEqual(losses[1][5], "200")
        self.assertEqual(tests[1][1:], ["6", "–", "1.3", "50", "40.0 %"])

    def test_dark_and_printed(self):
        page = self.report(*sample_runs.write(self.folder, sample_runs.EXPERIMENT[:2]),
                           *sample_runs.write_federated(self.folder, {"federated": {}}))
        colors = set()
        for more in ([], ["--blink-settings=preferredColorScheme=0"]):
            dom, said = browser.open_page(page, *more)
            self.assertEqual(said, [])
            self.assert_all_drawn(dom)
            colors.add(next(next(dom.all("svg")).all("text")).attributes["fill"])
        self.assertEqual(len(colors), 2, colors)
        pdf = self.folder / "page.pdf"
        _, said = browser.run(f"--print-to-pdf={pdf}", f"file://{page}")
        self.assertEqual(said, [])
        self.assertEqual(pdf.read_bytes()[:5], b"%PDF-")

    def test_nothing_is_loaded(self):
        text = self.report(*sample_runs.write(self.folder, sample_runs.EXPERIMENT[:1])).read_text()
        self.assertIn("default-src 'none'", text)
        markup = re.sub(r"(<script[^>]*>).*?</script>", r"\1", text, flags=re.DOTALL)
        self.assertIn("<script>", markup)
        self.assertEqual(re.findall(r"\b(?:src|href)=|url\(|@import", markup), [])

    def test_bad_input(self):
        done = subprocess.run([GRADWIRE, "report", self.folder, "-o", self.folder / "x.html"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"{self.folder}: the folder has no run.json", done.stderr)
        self.assertFalse((self.folder / "x.html").exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
