"""Pipeline schedules as Python values, compared with the gradwire program and with formulas. What
PyTorch's runtime makes of them is tested by test_pipelining.py."""

import copy
import itertools
import json
import pathlib
import pickle
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

from gradwire import pipeline, program
from gradwire.pipeline import Costs, Schedule, ScheduleFault, Task

SYNCHRONOUS = ("gpipe", "1f1b", "interleaved", "zero_bubble_h1", "zero_bubble", "zero_bubble_v",
               "auto")
ASYNCHRONOUS = ("pipedream", "2bw")
COSTS = Costs(0.02, 0.02, 0.02, message_bytes=1 << 20, bandwidth="1Gb/s")


def named(name, **options):
    return Schedule.named(name, **{"ranks": 4, "micro_batches": 8, **options})


class Value(unittest.TestCase):
    def test_it_says_what_it_is(self):
        schedule = named("interleaved:3", ranks=2, micro_batches=4)
        self.assertEqual(repr(schedule),
                         "Schedule('interleaved:3', ranks=2, stages=6, micro_batches=4)")
        self.assertEqual(schedule.rank_of_stage, (0, 1, 0, 1, 0, 1))
        self.assertEqual(schedule.stages_of(1), (1, 3, 5))
        with self.assertRaisesRegex(ValueError, "rank 2: expected 0 to 1"):
            schedule.stages_of(2)
        self.assertEqual(named("zero_bubble_v", ranks=2).stages_of(0), (0, 3))
        self.assertEqual(named("gpipe").kept, (8, 8, 8, 8))
        self.assertEqual(named("1f1b").kept, (4, 3, 2, 1))
        self.assertTrue(named("1f1b", barrier=True).barrier)
        for name in pipeline.names():
            self.assertEqual(named(name).asynchronous, name in ASYNCHRONOUS)

    def test_order(self):
        order = named("1f1b", ranks=2, micro_batches=2).order
        self.assertEqual([" ".join(map(str, tasks)) for tasks in order],
                         ["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"])
        self.assertEqual(order[1][1], Task("B", stage=1, micro_batch=0))
        late = [task for task in named("pipedream").order[0] if task.delay]
        self.assertIn("0B7-1", map(str, late))

    def test_equal_are_those_that_do_the_same(self):
        one = named("zero_bubble")
        self.assertEqual(one, named("zero_bubble:8"))  # The default, another name.
        self.assertEqual(hash(one), hash(named("zero_bubble:8")))
        for other in (named("zero_bubble", micro_batches=9), named("zero_bubble:4"), named("1f1b"),
                      named("zero_bubble", barrier=True), named("zero_bubble", ranks=3), None):
            self.assertNotEqual(one, other)
        self.assertEqual(len({named(name) for name in pipeline.names()} | {one}),
                         len({named(name).to_csv() for name in (*SYNCHRONOUS, "forward_only")})
                         + len(ASYNCHRONOUS))

    def test_copies_are_equal(self):
        for name in pipeline.names():
            schedule = named(name, barrier=True, kept=3)
            for other in (copy.copy(schedule), copy.deepcopy(schedule),
                          pickle.loads(pickle.dumps(schedule))):
                self.assertEqual(other, schedule)
                self.assertEqual(repr(other), repr(schedule))
                self.assertEqual(other.simulate(COSTS), schedule.simulate(COSTS))
                other.verify()

    def test_it_cannot_be_changed(self):
        schedule = named("1f1b")
        for attribute in ("name", "order", "other"):
            with self.assertRaises(AttributeError):
                setattr(schedule, attribute, 1)
        with self.assertRaises(AttributeError):
            COSTS.forward = 1


class Csv(unittest.TestCase):
    def test_round_trip(self):
        for name, micro_batches in itertools.product((*SYNCHRONOUS, "forward_only"), (1, 5, 8)):
            schedule = named(name, micro_batches=micro_batches)
            self.assertEqual(Schedule.from_csv(schedule.to_csv()), schedule)
        barrier = named("1f1b", barrier=True)
        self.assertEqual(Schedule.from_csv(barrier.to_csv(), name="mine", barrier=True), barrier)
        self.assertEqual(Schedule.from_csv("0F0,0B0", name="mine").name, "mine")

    def test_pytorch_parses_it(self):
        from torch.distributed.pipelining.schedules import _Action, _validate_schedule

        for name in SYNCHRONOUS:
            schedule = named(name)
            actions = {rank: [_Action.from_str(cell) for cell in line.split(",")]
                       for rank, line in enumerate(schedule.to_csv().splitlines())}
            found = _validate_schedule(actions, 4, schedule.stages, 8)
            self.assertEqual([found[stage] for stage in range(schedule.stages)],
                             list(schedule.rank_of_stage))
            for rank, tasks in enumerate(schedule.order):
                self.assertEqual(list(map(str, actions[rank])), list(map(str, tasks)))

    def test_what_has_no_csv(self):
        with self.assertRaisesRegex(ValueError, "pipedream: choose a synchronous one"):
            named("pipedream").to_csv()
        for text, reason in (("0F0,x", 'line 1: "x" is not a computation'), ("", "no computations"),
                             ("0F0\n0F1,0F70000", 'line 2: "0F70000"'), ("1F0", "no rank has st"),
                             ("0F0,0SEND_F0", '"0SEND_F0" is not a computation'),
                             ("(0F1;7B0)OVERLAP_F_B", "is not a computation")):
            with self.assertRaisesRegex(ValueError, reason):
                Schedule.from_csv(text)


class Verifier(unittest.TestCase):
    def test_named_schedules_are_correct(self):
        for name in pipeline.names():
            for ranks, micro_batches in ((1, 1), (2, 5), (4, 8)):
                self.assertIsNone(named(name, ranks=ranks, micro_batches=micro_batches).verify())

    def faulty(self, text):
        with self.assertRaises(ScheduleFault) as caught:
            Schedule.from_csv(text).verify()
        self.assertIsInstance(caught.exception, ValueError)
        self.assertTrue(str(caught.exception).startswith(caught.exception.fault + ": "))
        self.assertEqual(str(pickle.loads(pickle.dumps(caught.exception))), str(caught.exception))
        return caught.exception.fault

    def test_mutants_are_refused(self):
        right = named("zero_bubble", ranks=2, micro_batches=3).to_csv()

        def swapped(one, other):
            return right.replace(one, "x").replace(other, one).replace("x", other)

        self.assertEqual(self.faulty(right.replace(",1I1", "")), "incomplete")
        self.assertEqual(self.faulty(right.replace("1I1", "1I1,1I1")), "incomplete")
        self.assertEqual(self.faulty(right.replace("0F0", "1F0")), "malformed")
        self.assertEqual(self.faulty(swapped("1F1", "1I1")), "too_early")
        self.assertEqual(self.faulty(swapped("1W1", "1W2")), "wrong_order")
        self.assertEqual(self.faulty("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n"), "deadlock")

    def test_a_wrong_schedule_is_neither_simulated_nor_drawn(self):
        wrong = Schedule.from_csv("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n")
        for use in (wrong.simulate, wrong.draw, lambda: wrong.draw("svg")):
            with self.assertRaisesRegex(ScheduleFault, "deadlock: .* waits for"):
                use()


class Simulated(unittest.TestCase):
    def test_formulas(self):
        p, m = 4, 8
        for name in ("gpipe", "1f1b"):
            result = named(name).simulate()
            self.assertAlmostEqual(result.step_seconds, (m + p - 1) * 3)
            self.assertAlmostEqual(result.bubble, (p - 1) / (m + p - 1))
            self.assertEqual(result.busy, (24.0,) * p)
            self.assertEqual(result.kept, named(name).kept)
            self.assertEqual(len(result.tasks), 2 * m * p)
        half = named("interleaved").simulate()  # A rank's stages share its time.
        self.assertAlmostEqual(half.step_seconds, (m + (p - 1) / 2) * 3)
        uneven = named("gpipe", ranks=2).simulate(Costs([1, 3], 0, [0.5, 1]))
        self.assertEqual(uneven.busy, (12.0, 32.0))
        self.assertAlmostEqual(uneven.step_seconds, 1 + 8 * 3 + 8 * 1 + 0.5)

    def test_network(self):
        slow = Costs(1, 1, 1, message_bytes=125_000_000, bandwidth=125e6)  # A second each.
        result = named("gpipe").simulate(slow)
        self.assertAlmostEqual(result.step_seconds, 8 * 3 + 3 * (3 + 2))
        self.assertEqual(named("gpipe").simulate(Costs(message_bytes=125_000_000,
                                                       bandwidth="1Gb/s")), result)
        late = named("gpipe").simulate(Costs(latency=1))
        self.assertAlmostEqual(late.step_seconds, 8 * 3 + 3 * (3 + 2))
        catalogue = named("gpipe").simulate(Costs(message_bytes=125_000_000, network="1gbe"))
        self.assertGreater(catalogue.step_seconds, result.step_seconds)  # Headers.

    def test_agrees_with_the_program(self):
        for name, steps in itertools.product((*SYNCHRONOUS, *ASYNCHRONOUS), (None, 6)):
            for barrier in (False, True)[: 1 if name in ASYNCHRONOUS else 2]:
                words = ["schedule", "--stages", "4", "--micro-batches", "8", name, "--compute",
                         "20,20,20ms", "--message", "1M", "--bandwidth", "1Gb/s"]
                words += ["--steps", str(steps)] if steps else []
                text = program.output_of(words + ["--barrier"] * barrier)
                result = named(name, costs=COSTS, barrier=barrier).simulate(COSTS, steps=steps)
                self.agrees(text, result)

    def agrees(self, text, result):
        step, = re.findall(r"step +([\d.]+) ms", text)
        self.assertEqual(step, f"{1e3 * result.step_seconds:.4g}", text)
        self.assertIn(f"bubble    {100 * result.bubble:.1f} %\n", text)
        self.assertIn(f"kept      {', '.join(map(str, result.kept))} micro-batches", text)

    def test_a_search_agrees_with_the_program(self):
        text = program.output_of(
            ["schedule", "search", "--stages", "3", "--micro-batches", "6", "--compute",
             "20,20,20ms", "--message", "1200K", "--network", "1gbe", "--kept", "5,4,3"])
        costs = Costs(0.02, 0.02, 0.02, message_bytes=1200 << 10, network="1gbe")
        found = Schedule.search(ranks=3, micro_batches=6, costs=costs, kept=[5, 4, 3])
        self.agrees(text, found.simulate(costs))
        self.assertIn(found.name, text)


class Search(unittest.TestCase):
    def test_it_is_never_slower_than_named_schedules(self):
        uneven = Costs([1, 2, 1], [1, 1, 2], [0, 1, 1], message_bytes=1, bandwidth=2.0)
        for costs, limit, steps in ((Costs(), 3, 1), (uneven, 3, 1), (uneven, 6, 4),
                                    (Costs(message_bytes=1, bandwidth=0.5), 6, 1)):
            found = Schedule.search(ranks=3, micro_batches=6, costs=costs, kept=limit, steps=steps)
            found.verify()
            self.assertLessEqual(max(found.kept), limit)
            ours = found.simulate(costs, steps=steps).step_seconds
            names = ["gpipe", "1f1b", "zero_bubble_h1", "zero_bubble"]
            names += [f"{name}:{kept}" for name in ("1f1b", "zero_bubble") for kept in range(1, 7)]
            compared = 0
            for name in names:
                other = Schedule.named(name, ranks=3, micro_batches=6, costs=costs)
                if max(other.kept) <= limit:
                    theirs = other.simulate(costs, steps=steps).step_seconds
                    self.assertLessEqual(ours, theirs * (1 + 1e-9), (name, costs))
                    compared += 1
            self.assertGreaterEqual(compared, limit)

    def test_it_keeps_each_ranks_limit(self):
        found = Schedule.search(ranks=4, micro_batches=8, costs=COSTS, kept=[4, 3, 2, 1])
        self.assertTrue(all(kept <= 4 - rank for rank, kept in enumerate(found.kept)), found.kept)
        self.assertEqual(found, Schedule.search(ranks=4, micro_batches=8, costs=COSTS,
                                                kept=(4, 3, 2, 1)))
        default = Schedule.search(ranks=2, micro_batches=8, costs=COSTS)
        self.assertEqual(default, Schedule.search(ranks=2, micro_batches=8, costs=COSTS, kept=4))

    def test_it_is_the_same_in_another_process(self):
        code = ("from gradwire.pipeline import Costs, Schedule; print(Schedule.search(ranks=3, "
                "micro_batches=7, costs=Costs(message_bytes=1, bandwidth=2.0)).to_csv(), end='')")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              check=True)
        here = Schedule.search(ranks=3, micro_batches=7,
                               costs=Costs(message_bytes=1, bandwidth=2.0))
        self.assertEqual(done.stdout, here.to_csv())


class Drawing(unittest.TestCase):
    def test_text(self):
        schedule = named("1f1b", ranks=2, micro_batches=2)
        self.assertEqual(schedule.draw(steps=1), "rank 0   F0 F1 ......B0    ...B1\n"
                                                 "rank 1   ...F0 B0    F1 B1\n")
        for name in pipeline.names():
            lines = named(name).draw(costs=COSTS, columns=100).splitlines()
            self.assertEqual(len(lines), 4)
            for rank, line in enumerate(lines):
                self.assertRegex(line, rf"^rank {rank} +\S")
                self.assertLessEqual(len(line), len("rank 0   ") + 100 + 4)

    def test_svg(self):
        schedules = [named(name) for name in pipeline.names()]
        for schedule in (*schedules, Schedule.from_csv("0F0,0B0", name="<a & b>")):
            root = xml.etree.ElementTree.fromstring(schedule.draw("svg", steps=1))
            self.assertTrue(root.tag.endswith("svg"))
            titles = {title.text.split(",")[0] for title in root.iter() if
                      title.tag.endswith("title")}
            tasks = {str(task) for tasks in schedule.order for task in tasks}
            self.assertLessEqual({task for task in tasks if "-" not in task}, titles)
            self.assertTrue(any(schedule.name in (text.text or "") for text in root.iter()))


class Refusals(unittest.TestCase):
    def test_bad_arguments(self):
        cases = [
            (lambda: named("1f1"), 'did you mean "1f1b"'),
            (lambda: named("zero_bubble:0"), "a number above 0 after the colon"),
            (lambda: named("1f1b", ranks=0), "ranks=0: expected a whole number, 1 to 4096"),
            (lambda: named("1f1b", ranks=5000), "ranks=5000"),
            (lambda: named("1f1b", ranks="4"), "ranks='4'"),
            (lambda: named("1f1b", micro_batches=-1), "micro_batches=-1"),
            (lambda: named("1f1b", micro_batches=1 << 20), "micro_batches=1048576"),
            (lambda: named("1f1b", kept=0), "kept=0"),
            (lambda: named("interleaved", chunks=0), "chunks=0"),
            (lambda: named("interleaved", ranks=4000, chunks=2), "fewer ranks or chunks"),
            (lambda: named("1f1b", costs=Costs([1, 2])), "forward has the times of 2 stages"),
            (lambda: named("1f1b").simulate(steps=0), "steps=0"),
            (lambda: named("1f1b").simulate(Costs(1, [1] * 5)), "backward_input.*of 5 stages"),
            (lambda: named("1f1b").draw("png"), "format='png': expected 'text' or 'svg'"),
            (lambda: named("1f1b").draw(columns=0), "columns=0"),
            (lambda: Schedule.search(ranks=2, micro_batches=0), "micro_batches=0"),
            (lambda: Schedule.search(ranks=2, micro_batches=2, kept=[1]), r"kept=\[1\].*2 ranks"),
            (lambda: Schedule.search(ranks=2, micro_batches=2, kept=[1, 0]), "kept=0"),
            (lambda: Schedule.search(ranks=2, micro_batches=2, kept=0), "kept=0"),
            (lambda: Schedule.search(ranks=2, micro_batches=2, costs=Costs([1])), "1 stages"),
            (lambda: Costs(-1), "forward=-1: expected seconds, 0 or more"),
            (lambda: Costs(backward_weight=[1, float("nan")]), "backward_weight=nan"),
            (lambda: Costs(backward_input="1s"), "backward_input='1s'"),
            (lambda: Costs(message_bytes=4), "4 bytes of messages need a bandwidth"),
            (lambda: Costs(bandwidth="1 X"), "write for example 10Gb/s"),
            (lambda: Costs(bandwidth=0), "bandwidth=0: expected bytes per second above 0"),
            (lambda: Costs(network="1gbo"), 'did you mean "1gbe"'),
            (lambda: Costs(network="1gbe", latency=1), "give either"),
        ]
        for use, message in cases:
            with self.subTest(message), self.assertRaisesRegex(ValueError, message):
                use()

    def test_a_probed_network_is_read(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "topology.json"
            with self.assertRaisesRegex(ValueError, "topology.json"):
                Costs(network=file)
            rails = [{"interface": "eth0", "mtu": 1500, "bytes_per_second": 125e6,
                      "latency_us": 1e6}]
            hosts = [{"name": name, "ranks": 1, "cores": 2, "rails": rails,
                      "together_bytes_per_second": 125e6, "clock_offset_us": 0,
                      "clock_uncertainty_us": 0} for name in "ab"]
            file.write_text(json.dumps({"version": 1, "hosts": hosts, "paths": []}))
            probed = Costs(message_bytes=125_000_000, network=file)
            given = Costs(message_bytes=125_000_000, bandwidth="1Gb/s", latency=1)
            self.assertAlmostEqual(named("1f1b").simulate(probed).step_seconds,
                                   named("1f1b").simulate(given).step_seconds)


if __name__ == "__main__":
    unittest.main(verbosity=2)
