"use strict";

// The sections of the report in order; a section without data is omitted.
(() => {
  const { data, color, element, section, table, figure, swatch, text, missing } = gradwire;
  const page = document.getElementById("page");
  const runs = data.runs.map((run, index) => ({ ...run, index }));
  const having = (key) => runs.filter((run) => !missing(run[key]));

  // `layout`: "wide", "half", or "" for as many columns as fit.
  function charts(into, figures, layout = "") {
    into.append(element("div", { className: `charts ${layout}` }, ...figures.map(figure)));
  }

  const named = (run) => element("span", {}, swatch(color(run.index)), run.name);

  // `columns`: names and functions of a run.
  function comparison(some, columns) {
    return some.length > 6
      ? table(["run", ...columns.map(([name]) => name)],
        some.map((run) => [named(run), ...columns.map(([, get]) => get(run))]))
      // A line for each figure: as wide as the runs need, not as the figures.
      : table(["", ...some.map(named)],
        columns.map(([name, get]) => [name, ...some.map(get)]));
  }

  function overview() {
    const of = (run) => run.summary;
    const known = (kind, value) => (value ? text(kind, value) : "–");
    const columns = [
      ["strategy", (run) => run.strategy || "–"],
      ["ranks", (run) => String(of(run).ranks)],
      ["hosts", (run) => [...new Set(run.hosts)].join(", ") || "–"],
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
    if (runs.some((run) => of(run).staleness)) {
      const stale = (get) => (run) => (of(run).staleness ? get(of(run).staleness) : "–");
      columns.push(
        ["staleness, updates", stale((s) => `mean ${s.mean.toFixed(2)}, 99 % up to ${s.p99}, ` +
          `at most ${s.max}`)],
        ["predicted", stale((s) => (s.predicted ? `mean ${s.predicted.mean.toFixed(2)}, ` +
          `99 % up to ${s.predicted.p99}` : "–"))],
        ["mean factor on the rate", stale((s) => s.rate.toFixed(3))],
        ["late gradients", stale((s) => text("percent", s.late))],
        ["servers compute", stale((s) => text("percent", s.busy))]);
      if (runs.some((run) => of(run).staleness?.lost_servers)) {
        columns.push(["lost servers", stale((s) => `${s.lost_servers}, with ${s.lost_updates} ` +
          `updates, ${s.lost_gradients} gradients`)]);
      }
    }
    section("overview", "Overview", "Step times are medians; T_s, T_c and " +
      "bytes sent are means over ranks. Memory is the maximum over ranks: of tensors, and " +
      "resident memory of the whole process.").append(comparison(runs, columns));
  }

  function losses() {
    const some = having("loss");
    if (!some.length) return;
    const into = section("loss", "Loss", "Loss of each step's global batch. Long runs show means " +
      "of at most 500 intervals of steps. Where curves coincide, the first is the widest. " +
      "Scroll over the chart to zoom.");
    charts(into, reportCharts.losses(some), "wide");
    const tested = runs.filter((run) => run.tests?.step.length > 1);
    const rated = some.filter((run) => !run.loss.learning_rate.every(missing));
    charts(into, [...(tested.length ? [reportCharts.testLosses(tested)] : []),
      ...(rated.length ? [reportCharts.learningRates(rated)] : [])], "half");
  }

  function staleness() {
    const parts = (run) => ["worker", "unit"].flatMap((what) =>
      (run.summary.staleness?.[`by_${what}`] ?? []).map((part, number) =>
        [named(run), `${what} ${number}`, part.mean.toFixed(2), String(part.max)]));
    const rows = runs.flatMap(parts);
    if (!rows.length) return;
    section("staleness", "Staleness", "Updates of a unit between the version that a gradient was " +
      "computed at and the one that it changed: of each worker's gradients, where a group counts " +
      "as a worker, and of each unit's.").append(table(["run", "of", "mean", "maximum"], rows));
  }

  function epochs() {
    const some = having("epoch_s");
    if (!some.length) return;
    charts(section("epochs", "Time per epoch", "Complete epochs of training, without evaluation. " +
      "Bars are medians over epochs; the thick line spans the quartiles, the thin one the " +
      "minimum and maximum."),
      [reportCharts.spreads(some, (run) => run.epoch_s, "Time per epoch", "time of an epoch")],
      "wide");
  }

  function steps() {
    const some = having("histogram");
    if (!some.length) return;
    const into = section("steps", "Step times", data.same_bins
      ? "All runs have the same bins and axes."
      : "Medians differ by more than a factor of 4, so each run has its own axes.");
    charts(into, [reportCharts.spreads(some, (run) => run.step_s, "Time per step",
      "time of a step")], "wide");
    const highest = (run) => Math.max(...run.histogram.counts) /
      (run.histogram.counts.reduce((sum, count) => sum + count, 0) + run.histogram.above);
    const range = data.same_bins
      ? { most: Math.ceil(10 * Math.max(...some.map(highest))) * 10 } : null;
    charts(into, some.map((run) => ({
      ...reportCharts.histogram(run, range), mark: swatch(color(run.index)),
    })));
  }

  function shares() {
    const some = runs.filter((run) => run.summary.compute_s > 0);
    if (!some.length) return;
    charts(section("shares", "T_s and T_c", "Parts of a step's time: compute (T_s), waiting for " +
      "communication not hidden behind compute (T_c), waiting for the next batch. Medians over " +
      "steps, averaged over ranks."), [reportCharts.shares(some)], "wide");
  }

  function memory() {
    const some = having("memory_at_peak");
    if (!some.length) return;
    const into = section("memory", "Memory", "Memory of tensors, by libtorch's allocator: " +
      "at the peak of the rank with the maximum, and over time on rank 0. “Other” is what is " +
      "allocated outside of the named parts: the data set, batches, temporary results of " +
      "operations. Long runs show the maximum of each interval. All axes end at the maximum " +
      "peak.");
    charts(into, [reportCharts.memoryAtPeak(some)], "wide");
    const peak = 1.05 * Math.max(...some.map((run) => run.memory_at_peak.total));
    const figures = [];
    for (const run of having("memory")) {
      const add = (samples, title, note) => figures.push({
        ...reportCharts.memory(run, samples, peak, title, note), mark: swatch(color(run.index)),
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
      "step without communication divided by the time with it, the median over rounds."),
      data.ladders.map((ladder) => reportCharts.ladder(ladder, ladder.name)), "wide");
  }

  function configurations() {
    if (!runs.length && !federated.runs.length) return;
    const into = section("runs", "Runs", "Source, hosts and configuration of each run.");
    for (const run of runs) {
      into.append(element("details", {}, element("summary", {}, `${run.name} – ${run.source}`),
        run.hosts.length ? element("p", {}, `Hosts: ${ranksByHost(run.hosts)}`) : null,
        element("pre", {}, missing(run.config) ? "no configuration was recorded"
          : JSON.stringify(run.config, null, 2))));
    }
    into.append(...federated.runs.map((run) => element("p", {}, `${run.name} – ${run.source}`)));
  }

  // "a (ranks 0, 1), b (ranks 2, 3)"
  function ranksByHost(hosts) {
    const ranks = new Map(hosts.map((host) => [host, []]));
    hosts.forEach((host, rank) => ranks.get(host).push(rank));
    return [...ranks].map(([host, list]) =>
      `${host} (rank${list.length > 1 ? "s" : ""} ${list.join(", ")})`).join(", ");
  }

  function navigation() {
    const links = [...page.querySelectorAll("section")].map((part) =>
      element("a", { href: `#${part.id}` }, part.querySelector("h2").textContent));
    page.querySelector("h1").after(element("nav", {}, ...links));
  }

  page.append(element("h1", {}, data.title));
  if (runs.length) overview();
  federated.overview(comparison);
  losses();
  staleness();
  epochs();
  steps();
  shares();
  memory();
  ladders();
  federated.sections(charts);
  configurations();
  navigation();
  gradwire.drawAll();
})();
