"""The page of `gradwire plan --html` has sliders that show the values of `gradwire plan --json` and
interpolate between them. In a headless browser without network.

usage: test_plan_page.py GRADWIRE [unittest arguments]
"""

import html
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "report"))
import browser  # noqa: E402

GRADWIRE = sys.argv.pop(1) if len(sys.argv) > 1 else "build/bin/gradwire"
BASE = ["--model", "resnet50"]

PROBE = """<script>
(() => {
  const { at, value } = gradwire.plan;
  const { networks, codecs } = gradwire.data.axes;
  const probe = (nodes, network, batch, codec) => ["eta", "step", "rate", "memory"].map((column) =>
    value(column, {
      nodes, batch, network: networks.indexOf(network), codec: codecs.indexOf(codec) }));
  const slider = document.getElementById("nodes");
  const before = document.getElementById("eta").textContent;
  slider.value = 10;
  slider.dispatchEvent(new Event("input"));
  const made = document.createElement("pre");
  made.id = "probe";
  made.textContent = JSON.stringify({
    points: POINTS.map((point) => probe(...point)), before,
    after: document.getElementById("eta").textContent, moved: at.nodes,
  });
  document.body.append(made);
})();
</script>"""

POINTS = [[4, "10gbe", 32, "none"], [64, "1gbe", 8, "bf16"], [4096, "ib_hdr", 128, "int8"],
          [1, "10gbe", 32, "none"], [6, "10gbe", 32, "none"], [8, "10gbe", 32, "none"],
          [4, "10gbe", 48, "none"], [4, "10gbe", 64, "none"]]


def plan(*options):
    done = subprocess.run([GRADWIRE, "plan", *BASE, *map(str, options)], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "plan.html"
            plan("--html", path, "--step-ms", 234)
            cls.text = path.read_text()
            path.write_text(cls.text + PROBE.replace("POINTS", json.dumps(POINTS)))
            cls.dom, cls.said = browser.open_page(path)
        cls.probe = json.loads(html.unescape(cls.dom.by_id("probe")[0].text()))

    def test_it_says_nothing_and_loads_nothing(self):
        self.assertEqual(self.said, [])
        self.assertIn("default-src 'none'", self.text)

    def test_its_chart_is_drawn(self):
        plots = [node for node in self.dom.all("div") if node.attributes.get("class") == "plot"]
        self.assertEqual(len(plots), 1)
        shapes = [path for path in plots[0].all("path") if path.attributes.get("d")]
        self.assertGreater(len(shapes), 7)
        self.assertNotIn("NaN", " ".join(path.attributes["d"] for path in shapes))

    def test_points_of_the_table_are_plans(self):
        for point, shown in list(zip(POINTS, self.probe["points"]))[:4]:
            nodes, network, batch, codec = point
            options = ["--nodes", nodes, "--network", network, "--codec", codec, "--batch", batch,
                       "--step-ms", 234 * batch / 32, "--json", "-"]
            expected = json.loads(plan(*options))
            of = [expected["eta"], expected["step_ms"] / 1e3, expected["samples_per_second"],
                  expected["memory_bytes"]]
            for one, other in zip(shown, of):
                self.assertAlmostEqual(one / other, 1, delta=1e-3, msg=point)

    def test_it_compares_pipeline_zero_and_data_parallelism(self):
        expected = json.loads(plan("--step-ms", 234, "--json", "-"))["ways"]
        section, = self.dom.by_id("ways")
        names = [row.text() for row in section.all("th") if row.attributes.get("scope") == "row"]
        self.assertEqual(names, [way["name"] for way in expected])
        texts = [paragraph.text() for paragraph in section.all("p")]
        for way in expected:
            self.assertTrue(any(text.startswith(way["text"]) for text in texts), texts)
        # The schedule of the pipeline: a box with a title for each of its computations.
        pipeline, = [way for way in expected if "pipeline" in way]
        titles = [title.text() for title in section.all("title")]
        forwards = [title for title in titles if "F" in title.split(",")[0]]
        stages = pipeline["mesh"]["pipeline"]
        self.assertEqual(len(forwards), stages * pipeline["pipeline"]["micro_batches"])
        self.assertEqual(len(pipeline["memory_by_stage"]), stages)

    def test_between_points_lies_what_is_between(self):
        four, *_, six, eight, batch48, batch64 = self.probe["points"]
        for middle, end in ((six, eight), (batch48, batch64)):
            for low, mid, high in zip(four, middle, end):
                self.assertLessEqual(min(low, high) * (1 - 1e-9), mid)
                self.assertLessEqual(mid, max(low, high) * (1 + 1e-9))
        self.assertNotEqual(six[2], four[2])

    def test_sliders_change_the_answers(self):
        self.assertEqual(self.probe["moved"], 1024)
        self.assertNotEqual(self.probe["before"], self.probe["after"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
