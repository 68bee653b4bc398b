"use strict";

// The report: its sections in order, each only if a run has something for it.
(() => {
  const { data, colour, element, section, table, figure, swatch, text, missing } = gradwire;
  const page = document.getElementById("page");
  const runs = data.runs.map((run, index) => ({ ...run, index }));
  const having = (key) => runs.filter((run) => !missing(run[key]));

  // `layout`: "wide", "half", or "" for as many beside each other as fit.
  function charts(into, figures, layout = "") {
    into.append(element("div", { className: `charts ${layout}` }, ...figures.map(figure)));
  }

  const named = (run) => element("span", {}, swatch(colour(run.index)), run.name);

  function overview() {
    const of = (run) => run.summary;
    const known = (kind, value) => (value ? text(kind, value) : "–");
    const columns = [
      ["strategy", (run) => run.strategy || "–"],
      ["ranks", (run) => String(of(run).ranks)],
      ["steps", (run) => String(of(run).steps)],
      ["test accuracy", (run) => known("percent", of(run).test_accuracy)],
      ["test loss", (run) => text("number", of(run).test_loss)],
      ["samples/s", (run) => text("number", of(run).images_per_second)],
      ["training", (run) => text("seconds", of(run).training_s)],
      ["step (median)", (run) => text("seconds", run.step_s?.median)],
      ["T_s / (T_s + T_c)", (run) => text("percent", of(run).efficiency)],
      ["sent a step", (run) => text("bytes", of(run).sent_bytes)],
      ["of 2(P−1)G/P", (run) => (of(run).sent_bytes && of(run).textbook_bytes
        ? (of(run).sent_bytes / of(run).textbook_bytes).toFixed(3) : "–")],
      ["tensors, at most", (run) => text("bytes", run.peak_bytes)],
      ["process, at most", (run) => text("bytes", run.resident_bytes)],
    ];
    section("overview", "Overview", "A line for each run. Times of a step are medians; T_s, T_c " +
      "and bytes sent are means over ranks. Memory is the largest of any rank: of tensors, and " +
      "resident of the whole process.").append(
      table(["run", ...columns.map(([name]) => name)],
        runs.map((run) => [named(run), ...columns.map(([, get]) => get(run))])));
  }

  function losses() {
    const some = having("loss");
    if (!some.length) return;
    charts(section("loss", "Loss", "Of each step's whole batch; long runs as means of " +
      "stretches of steps, 500 at most. Curves that coincide lie on one another, the first the " +
      "widest. Scroll over the chart to look closer."), [reportCharts.loss(some)], "wide");
  }

  function epochs() {
    const some = having("epoch_s");
    if (!some.length) return;
    charts(section("epochs", "Time per epoch", "Whole epochs of training without evaluation. " +
      "Bars are medians over epochs; the thick line goes from quartile to quartile, the thin one from " +
      "the shortest to the longest."),
      [reportCharts.times(some, "epoch_s", "Time per epoch", "time of an epoch")], "wide");
  }

  function steps() {
    const some = having("histogram");
    if (!some.length) return;
    const into = section("steps", "Step times", data.same_bins
      ? "The same bars and axes for all runs."
      : "Medians differ by more than a factor of 4, so each run has axes of its own.");
    charts(into, [reportCharts.times(some, "step_s", "Time per step", "time of a step")], "wide");
    const highest = (run) => Math.max(...run.histogram.counts) /
      (run.histogram.counts.reduce((sum, count) => sum + count, 0) + run.histogram.above);
    const range = data.same_bins
      ? { most: Math.ceil(10 * Math.max(...some.map(highest))) * 10 } : null;
    charts(into, some.map((run) => ({
      ...reportCharts.histogram(run, range), mark: swatch(colour(run.index)),
    })));
  }

  function shares() {
    const some = runs.filter((run) => run.summary.compute_s > 0);
    if (!some.length) return;
    charts(section("shares", "T_s and T_c", "What a step's time goes into: computing (T_s), " +
      "waiting for communication that compute did not hide (T_c), waiting for the next batch. " +
      "Medians over steps, means of those over ranks."), [reportCharts.shares(some)], "wide");
  }

  function memory() {
    const some = having("memory_at_peak");
    if (!some.length) return;
    const into = section("memory", "Memory", "Of tensors, as libtorch's allocator counted it: at " +
      "the peak of the rank that needed most, over time of rank 0. Of long runs each stretch " +
      "shows its greatest moment. All axes reach to the greatest peak.");
    charts(into, [reportCharts.memoryAtPeak(some)], "wide");
    const peak = 1.05 * Math.max(...some.map((run) => run.memory_at_peak.total));
    const figures = [];
    for (const run of having("memory")) {
      const add = (samples, title, note) => figures.push({
        ...reportCharts.memory(run, samples, peak, title, note), mark: swatch(colour(run.index)),
      });
      add(run.memory, `${run.name}: the whole run`);
      const step = run.memory_of_a_step;
      if (step) add(step, `${run.name}: step ${step.step[0]}`);
    }
    charts(into, figures, "half");
  }

  function ladders() {
    if (!data.ladders.length) return;
    charts(section("ladder", "Ladder", "Measured by gradwire bench step: η is the time of a " +
      "step without communication by that with it, at the median of rounds."),
      data.ladders.map((ladder) => reportCharts.ladder(ladder, ladder.name)), "wide");
  }

  function configurations() {
    if (!runs.length) return;
    const into = section("runs", "Runs", "Where the figures come from.");
    for (const run of runs) {
      into.append(element("details", {}, element("summary", {}, `${run.name} – ${run.source}`),
        element("pre", {}, missing(run.config) ? "no configuration was recorded"
          : JSON.stringify(run.config, null, 2))));
    }
  }

  function navigation() {
    const links = [...page.querySelectorAll("section")].map((part) =>
      element("a", { href: `#${part.id}` }, part.querySelector("h2").textContent));
    page.querySelector("h1").after(element("nav", {}, ...links));
  }

  page.append(element("h1", {}, data.title));
  if (runs.length) overview();
  losses();
  epochs();
  steps();
  shares();
  memory();
  ladders();
  configurations();
  navigation();
  gradwire.drawAll();
})();
