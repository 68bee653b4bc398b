"use strict";

// Sections of federated runs. `charts(into, figures, layout)` adds figures to a section.
const federated = (() => {
  const { data, color, partColor, digits, unitFor, inUnit, text, missing } = gradwire;
  const { section, swatch, base, axis, upright } = gradwire;
  const { curves, pairs, fine, legendLines, spreads, histogram } = reportCharts;

  // Colors continue after those of the other runs.
  const runs = data.federated.map((run, i) => ({ ...run, index: data.runs.length + i }));
  const mark = (run) => swatch(color(run.index));

  // `comparison(runs, columns)`: a table of runs.
  function overview(comparison) {
    if (!runs.length) return;
    const columns = [
      ["clients", "number", (run) => run.clients],
      ["rounds committed", "number", (run) => run.rounds.committed],
      ["rounds abandoned", "number", (run) => run.rounds.abandoned],
      ["time of the rounds", "seconds", (run) => run.rounds.seconds],
      ["accuracy, last", "percent", (run) => run.rounds.accuracy?.last],
      ["loss, last", "number", (run) => run.rounds.loss?.last],
      ["up, all clients", "bytes", (run) => run.rounds.up_bytes],
      ["down, all clients", "bytes", (run) => run.rounds.down_bytes],
      ["Jain's index", "number", (run) => run.jain],
      ["accuracy by client, mean", "percent", (run) => run.mean_accuracy],
      ["of the worst tenth", "percent", (run) => run.worst_tenth_accuracy],
    ].filter(([, , get]) => runs.some((run) => !missing(get(run))));
    section("federated", "Federated runs", "Time is virtual in simulations. Jain's index of how " +
      "often clients counted is 1 if all counted equally often, and 1/n if one of n did.").append(
      comparison(runs, columns.map(([name, kind, get]) =>
        [name, (run) => (kind === "number" && Number.isInteger(get(run))
          ? String(get(run)) : text(kind, get(run)))])));
  }

  // Accuracy or loss by round; `key` of run.rounds. Empty if no run has it.
  function measured(key, title, name, kind) {
    const some = runs.filter((run) => !missing(run.rounds[key]));
    if (!some.length) return [];
    const shown = (value) => (kind === "percent" ? text(kind, value) : fine(value));
    const points = (run) =>
      pairs(run.rounds.curve.round, run.rounds.curve[key]).filter(([, value]) => !missing(value))
        .map(([round, value]) => [round, kind === "percent" ? 100 * value : value]);
    const few = some.every((run) => points(run).length <= 60);
    return [{
      ...curves(some, title, 300, { name, scale: true }, points,
        { symbol: few ? "circle" : "none", symbolSize: 5 }, "round"),
      head: ["run", "rounds measured", "first", "last", kind === "percent" ? "maximum" : "minimum",
        "in round"],
      rows: some.map(({ name: run, rounds }) => [run, String(rounds[key].count),
        ...["first", "last", "best"].map((part) => shown(rounds[key][part])),
        String(rounds[key].best_round)]),
    }];
  }

  const COUNTS = ["asked", "ready", "used", "dropped"];
  const SPREAD = ["least", "lower_quartile", "median", "upper_quartile", "most"];

  function clientsOfRounds(run) {
    const { curve, abandoned } = run.rounds;
    const symbol = curve.round.length > 1 ? "none" : "circle";
    const series = (name, i, points, more) =>
      ({ name, color: partColor(i), data: points, ...more });
    return {
      title: `${run.name}: clients by round`, mark: mark(run), height: 260,
      option: (look) => ({
        ...base(look),
        xAxis: axis(look, { type: "value", name: "round", min: "dataMin", max: "dataMax" }),
        yAxis: upright(look, { name: "clients", min: 0 }),
        series: [
          ...COUNTS.map((name, i) => series(name, i, pairs(curve.round, curve[name]),
            { type: "line", step: "middle", symbol, lineStyle: { width: 1.6 } })),
          ...(abandoned ? [series("abandoned rounds", 4, pairs(curve.round, curve.abandoned)
            .filter(([, count]) => count > 0), { type: "scatter", symbolSize: 8 })] : [])],
      }),
      head: ["a round", ...SPREAD.map((part) => part.replace("_", " "))],
      rows: [...COUNTS.map((name) =>
        [name, ...SPREAD.map((part) => text("number", run.rounds[name][part]))]),
      ...(abandoned ? [[`abandoned: ${abandoned} rounds`]] : [])],
    };
  }

  function rounds(charts) {
    if (!runs.length) return;
    const into = section("rounds", "Rounds", "Simulations have the accuracy on test data after a " +
      "round. Without test data, and in served runs, it is that of the model before the round, " +
      "on samples that its clients hold out. More than 500 rounds are shown as means of 500 " +
      "intervals.");
    charts(into, measured("accuracy", "Accuracy by round", "accuracy, %", "percent"), "wide");
    charts(into, [...measured("loss", "Loss by round", "loss", "number"),
      ...measured("training_loss", "Training loss by round", "mean loss of its clients", "number")],
    "half");
    charts(into, runs.map(clientsOfRounds), "half");
  }

  // Vertical bars, one of each `series` ({name, color, values}) at each label.
  function bars({ title, labels, series, kind, name, x, ...more }) {
    const unit = unitFor(kind, Math.max(...series.flatMap(({ values }) => values), 0));
    const lines = legendLines(series);
    return {
      title, height: 250 + 18 * lines,
      option: (look) => ({
        ...base(look),
        grid: { ...base(look).grid, top: 38 + 18 * lines },
        tooltip: { ...base(look).tooltip, axisPointer: { type: "shadow" },
          valueFormatter: (value) => (missing(value) ? "–" : `${digits(value)} ${unit.name}`) },
        xAxis: axis(look, { type: "category", name: x, data: labels, axisTick: { show: false } }),
        yAxis: upright(look, { name: inUnit(name, unit), min: 0 }),
        series: series.map((one) => ({
          name: one.name, type: "bar", barMaxWidth: 26,
          itemStyle: { color: one.color, opacity: one.opacity ?? 1 },
          data: one.values.map((value) => (missing(value) ? null : value / unit.size)),
        })),
      }),
      open: true, ...more,
    };
  }

  // Groups of clients by their samples: at most four.
  function groups(run) {
    const list = run.participation.groups;
    const labels = list.map(({ least, most }) =>
      (least === most ? String(least) : `${least}–${most}`));
    const parts = ["eligible", "asked", "counted"];
    return bars({
      title: `${run.name}: rounds by samples of a client`, mark: mark(run), labels, kind: "number",
      name: "mean rounds of a client", x: "samples of a client",
      series: parts.map((name, i) =>
        ({ name, color: partColor(i), values: list.map((group) => group[name]) })),
      head: ["samples", "clients", ...parts, "share of samples", "share of counted"],
      rows: list.map((group, i) => [labels[i], String(group.clients),
        ...parts.map((part) => text("number", group[part])),
        text("percent", group.sample_share), text("percent", group.counted_share)]),
    });
  }

  function participation(charts) {
    const some = runs.filter((run) => !missing(run.participation));
    if (!some.length) return;
    const into = section("participation", "Participation", "In how many rounds a client's update " +
      "counted. Below, clients are grouped at the quartiles of their samples: the server is fair " +
      "if groups that are eligible equally often count equally often.");
    const median = (part) => (run) => text("number", run.participation[part].median);
    charts(into, [spreads(some, (run) => run.participation.counted,
      "Rounds in which a client counted", "rounds of a client", "number", [
        ["Jain's index", (run) => text("number", run.jain)],
        ["never counted", (run) => String(run.participation.never)],
        ["eligible, median", median("eligible")], ["asked, median", median("asked")]])], "wide");
    charts(into, some.map(groups), "half");
  }

  // Bars of the device classes of all runs that have them.
  function byClass(some, key, title, name, kind) {
    const labels = [...new Set(some.flatMap((run) => run.classes.map((one) => one.devices)))];
    const values = (run) =>
      labels.map((label) => run.classes.find((one) => one.devices === label)?.[key]);
    return bars({
      title, labels, kind, name,
      series: some.map((run) => ({ name: run.name, color: color(run.index), values: values(run) })),
      head: ["run", ...labels],
      rows: some.map((run) => [run.name, ...values(run).map((value) => text(kind, value))]),
    });
  }

  const classified = () => runs.filter((run) => run.classes.length);

  function accuracies(charts) {
    const some = runs.filter((run) => !missing(run.accuracy));
    if (!some.length) return;
    const into = section("client-accuracy", "Accuracy by client", "The final model on the " +
      "samples that each client holds out. Device classes are thirds of the clients, by the time " +
      "of their local work.");
    const columns = [["mean", (run) => text("percent", run.mean_accuracy)],
      ["worst tenth", (run) => text("percent", run.worst_tenth_accuracy)]];
    charts(into, [spreads(some, (run) => run.accuracy, "Accuracy by client", "accuracy", "percent",
      columns)], "wide");
    const highest = (run) => Math.max(...run.accuracy_histogram.counts) / run.accuracy.count;
    const range = { most: Math.ceil(10 * Math.max(...some.map(highest))) * 10 };
    charts(into, some.map((run) => ({
      ...histogram(run, range, { histogram: "accuracy_histogram", spread: "accuracy",
        kind: "percent", name: "accuracy of a client", items: "clients" }), mark: mark(run),
    })));
    const rated = classified().filter((run) => run.classes.some((one) => !missing(one.accuracy)));
    if (rated.length) {
      charts(into, [byClass(rated, "accuracy", "Accuracy by device class", "accuracy", "percent")],
        "half");
    }
  }

  const COSTS = [["compute_seconds", "Compute", "compute of a client", "seconds"],
    ["up_bytes", "Bytes up", "bytes up of a client", "bytes"],
    ["down_bytes", "Bytes down", "bytes down of a client", "bytes"]];

  // The share of samples, paler, beside that of updates.
  function shares(run) {
    const labels = run.classes.map((one) => one.devices);
    const values = (key) => run.classes.map((one) => one[key]);
    return bars({
      title: `${run.name}: shares of the device classes`, mark: mark(run), labels, kind: "percent",
      name: "share",
      series: [
        { name: "samples", color: color(run.index), opacity: 0.45, values: values("sample_share") },
        { name: "updates that counted", color: color(run.index), values: values("counted_share") }],
      head: ["devices", "clients", "samples", "updates that counted"],
      rows: run.classes.map((one) => [one.devices, String(one.clients),
        text("percent", one.sample_share), text("percent", one.counted_share)]),
    });
  }

  function costs(charts) {
    const some = runs.filter((run) => !missing(run.cost));
    const of = classified();
    if (!some.length && !of.length) return;
    const into = section("client-cost", "Cost by client", "Over all rounds. Device classes are " +
      "thirds of the clients, by the time of their local work; their costs are means over the " +
      "clients of a class.");
    if (of.length) {
      charts(into, [...COSTS.map(([key, title, name, kind]) =>
        byClass(of, key, `${title} by device class`, name, kind)), ...of.map(shares)], "half");
    }
    if (some.length) {
      charts(into, COSTS.map(([key, title, name, kind]) =>
        spreads(some, (run) => run.cost[key], `${title} by client`, name, kind)), "half");
    }
  }

  function sections(charts) {
    for (const add of [rounds, participation, accuracies, costs]) add(charts);
  }

  return { runs, overview, sections };
})();
