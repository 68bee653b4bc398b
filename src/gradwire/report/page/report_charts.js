"use strict";

// Charts of a report: each function takes runs and returns arguments of gradwire.figure().
const reportCharts = (() => {
  const { color, dash, partColor, digits, unitFor, inUnit, text, missing } = gradwire;
  const { base, axis, upright, names, barsHeight } = gradwire;
  const { categories } = gradwire.data;

  const SHARES = [
    { key: "compute_s", name: "compute T_s", color: "#009988" },
    { key: "exposed_s", name: "communication T_c", color: "#ee7733" },
    { key: "data_s", name: "waiting for data", color: "#999999" },
  ];

  const lying = (look) => ({ ...base(look).grid, right: 40, top: 32 });

  const most = (values) => Math.max(...values, 0);

  // The first of coinciding curves is the widest, so that all are visible.
  const lineWidth = (index, count) => (count > 8 ? 1.5 : 1.2 + (count - 1 - index) * 0.9);

  // Approximate number of legend lines in a wide chart.
  const legendLines = (runs) =>
    Math.ceil(runs.reduce((sum, run) => sum + 45 + 6.5 * run.name.length, 0) / 1080);

  const fine = (value) => (missing(value) ? "–" : String(Number(value.toPrecision(5))));

  // Also logarithmic, if a loss falls so far that its end is a line on the linear axis.
  function losses(runs) {
    const values = runs.flatMap((run) => run.loss.loss);
    const falls = Math.min(...values) > 0 && Math.max(...values) > 20 * Math.min(...values);
    return falls ? [loss(runs), loss(runs, "log")] : [loss(runs)];
  }

  function loss(runs, scale = "value") {
    return {
      ...curves(runs, `Training loss by step${scale === "log" ? ", logarithmic" : ""}`, 380,
        { type: scale, name: "loss of a step", scale: true },
        (run) => pairs(run.loss.step, run.loss.loss)),
      head: ["run", "first", "last", "minimum", "maximum difference from the first run",
        "steps not finite"],
      rows: runs.map((run) => [
        run.name, fine(run.loss.loss[0]), fine(run.loss.loss.at(-1)),
        run.loss.loss.length ? fine(Math.min(...run.loss.loss)) : "–",
        text("number", run.loss_difference), String(run.loss.not_finite)]),
    };
  }

  // A chart of one curve for each run. `points(run)`: pairs of a step and a value; `more`:
  // properties of each curve; `x`: what the first of each pair counts.
  function curves(runs, title, height, yAxis, points, more = {}, x = "step") {
    return {
      title,
      height: height + legendLines(runs) * 18,
      option: (look) => ({
        ...base(look),
        grid: { ...base(look).grid, top: 30 + legendLines(runs) * 18 },
        xAxis: axis(look, {
          type: "value", name: x, min: "dataMin", max: "dataMax",
          axisLabel: { color: look.faint, hideOverlap: true,
            formatter: (step) => Math.round(step).toLocaleString("en") },
        }),
        yAxis: upright(look, yAxis),
        series: runs.map((run, index) => ({
          name: run.name, type: "line", symbol: "none", color: color(run.index),
          lineStyle: { type: dash(run.index), width: lineWidth(index, runs.length) },
          data: points(run), ...more,
        })),
        dataZoom: [{ type: "inside" }],
      }),
      open: true,
    };
  }

  const pairs = (steps, values) => steps.map((step, i) => [step, values[i]]);

  // Evaluations during the training.
  function testLosses(runs) {
    const best = ({ tests }) =>
      tests.loss.indexOf(Math.min(...tests.loss.filter((loss) => !missing(loss))));
    return {
      ...curves(runs, "Test loss by step", 300, { name: "test loss", scale: true },
        ({ tests }) => pairs(tests.step, tests.loss), { symbol: "circle", symbolSize: 5 }),
      head: ["run", "evaluations", "last", "minimum", "after step", "accuracy there"],
      rows: runs.map((run) => [
        run.name, String(run.tests.step.length), fine(run.tests.loss.at(-1)),
        fine(run.tests.loss[best(run)]), String(run.tests.step[best(run)] ?? "–"),
        text("percent", run.tests.accuracy[best(run)])]),
    };
  }

  function learningRates(runs) {
    const rates = (run) => run.loss.learning_rate;
    return {
      ...curves(runs, "Learning rate by step", 300, { name: "learning rate", min: 0 },
        (run) => pairs(run.loss.step, rates(run))),
      head: ["run", "first", "maximum", "last"],
      rows: runs.map((run) => [
        run.name, fine(rates(run)[0]), fine(most(rates(run))), fine(rates(run).at(-1))]),
    };
  }

  // A thick line spans the quartiles, a thin one the minimum and maximum.
  function whiskers(look, spreads, size) {
    return {
      name: "quartiles (thick), minimum and maximum (thin)", type: "custom", z: 5,
      itemStyle: { color: look.text },
      encode: { x: [1, 2, 3, 4], y: 0 },
      data: spreads.map((s, i) => [i, s.least / size, s.lower_quartile / size,
        s.upper_quartile / size, s.most / size]),
      tooltip: { show: false },
      renderItem: (params, api) => {
        const at = (i) => api.coord([api.value(i), api.value(0)]);
        const line = (from, to, width) => ({
          type: "line",
          shape: { x1: at(from)[0], y1: at(from)[1], x2: at(to)[0], y2: at(to)[1] },
          style: { stroke: look.text, lineWidth: width },
        });
        return { type: "group", children: [line(1, 4, 1.2), line(2, 3, 4)] };
      },
    };
  }

  const SPREAD = ["least", "lower_quartile", "median", "upper_quartile", "most"];
  const SPREAD_HEAD = ["run", "count", ...SPREAD.map((part) => part.replace("_", " "))];
  const spreadRow = (name, spread, kind) =>
    [name, String(spread.count), ...SPREAD.map((part) => text(kind, spread[part]))];

  // Bars of medians with their spread, which `get(run)` returns; `more`: further columns of the
  // table, each a name and a function of a run.
  function spreads(runs, get, title, name, kind = "seconds", more = []) {
    const unit = unitFor(kind, most(runs.map((run) => get(run).median)));
    return {
      title,
      height: barsHeight(runs.length),
      option: (look) => ({
        ...base(look),
        grid: lying(look),
        tooltip: { ...base(look).tooltip, axisPointer: { type: "shadow" },
          valueFormatter: (value) => `${digits(value)} ${unit.name}` },
        xAxis: axis(look, { type: "value", name: inUnit(name, unit), min: 0 }),
        yAxis: names(look, runs.map((run) => run.name)),
        series: [
          {
            name: "median", type: "bar", barMaxWidth: 18, itemStyle: { color: look.faint },
            label: { show: false },
            data: runs.map((run) => ({
              value: get(run).median / unit.size, itemStyle: { color: color(run.index) },
            })),
          },
          whiskers(look, runs.map(get), unit.size),
        ],
      }),
      head: [...SPREAD_HEAD, ...more.map(([column]) => column)],
      rows: runs.map((run) => [...spreadRow(run.name, get(run), kind),
        ...more.map(([, cell]) => cell(run))]),
      open: true,
    };
  }

  // One run's step times, or other values. `range`: axis limits shared by all runs, or null.
  const STEP_TIMES = { histogram: "histogram", spread: "step_s", kind: "seconds",
    name: "step time", items: "steps" };
  function histogram(run, range, of = STEP_TIMES) {
    const { low, width, counts, above } = run[of.histogram];
    const spread = run[of.spread];
    const total = counts.reduce((sum, count) => sum + count, 0) + above;
    const unit = unitFor(of.kind, low + width * counts.length);
    const edge = (i) => (low + width * i) / unit.size;
    const shown = counts.map((count, i) => [edge(i), edge(i + 1), (100 * count) / total])
      .filter(([, , share]) => share > 0);
    const beyond = above ? `, ${above} beyond the last bar` : "";
    return {
      title: run.name,
      note: `median ${text(of.kind, spread.median)}, quartiles ` +
        `${text(of.kind, spread.lower_quartile)} and ` +
        `${text(of.kind, spread.upper_quartile)}; ${total} ${of.items}${beyond}`,
      height: 220,
      option: (look) => ({
        ...base(look),
        legend: { show: false },
        grid: { ...base(look).grid, top: 30 },
        tooltip: {
          ...base(look).tooltip, trigger: "item",
          formatter: ({ value }) => `${digits(value[0])} to ${digits(value[1])} ${unit.name}: ` +
            `${digits(value[2])} % of the ${of.items}`,
        },
        xAxis: axis(look, { type: "value", name: inUnit(of.name, unit), min: edge(0),
          max: edge(counts.length) }),
        yAxis: upright(look, { name: `% of the ${of.items}`, max: range?.most }),
        series: [{
          name: run.name, type: "custom", itemStyle: { color: color(run.index) }, data: shown,
          encode: { x: [0, 1], y: 2 },
          renderItem: (params, api) => {
            const [left, top] = api.coord([api.value(0), api.value(2)]);
            const [right, bottom] = api.coord([api.value(1), 0]);
            const width = Math.max(right - left - 1, 1);
            return { type: "rect", style: { fill: color(run.index) },
              shape: { x: left, y: top, width, height: bottom - top } };
          },
        }],
      }),
      head: ["from", "to", of.items],
      rows: counts.map((count, i) => [`${digits(edge(i))} ${unit.name}`,
        `${digits(edge(i + 1))} ${unit.name}`, String(count)]).filter((row) => row[2] !== "0"),
    };
  }

  const part = (run, key) => Math.max(run.summary[key], 0);
  const stepTotal = (run) => SHARES.reduce((sum, { key }) => sum + part(run, key), 0);

  function shares(runs) {
    return {
      title: "Shares of a step: compute T_s, exposed communication T_c, data",
      height: barsHeight(runs.length) + 10,
      option: (look) => ({
        ...base(look),
        grid: lying(look),
        tooltip: { ...base(look).tooltip, axisPointer: { type: "shadow" },
          valueFormatter: (value) => `${digits(value)} %` },
        xAxis: axis(look, { type: "value", name: "% of the step", min: 0, max: 100 }),
        yAxis: names(look, runs.map((run) => run.name)),
        series: SHARES.map((share) => ({
          name: share.name, type: "bar", stack: "step", barMaxWidth: 18,
          itemStyle: { color: share.color },
          data: runs.map((run) => (100 * part(run, share.key)) / stepTotal(run)),
        })),
      }),
      head: ["run", "T_s", "T_c", "data", "T_s / (T_s + T_c)"],
      rows: runs.map((run) => [run.name,
        ...SHARES.map(({ key }) => text("seconds", run.summary[key])),
        text("percent", run.summary.efficiency)]),
      open: true,
    };
  }

  function memoryAtPeak(runs) {
    const unit = unitFor("bytes", most(runs.map((run) => run.memory_at_peak.total)));
    return {
      title: "Memory at its peak, by category",
      height: barsHeight(runs.length) + 10,
      option: (look) => ({
        ...base(look),
        grid: lying(look),
        tooltip: { ...base(look).tooltip, axisPointer: { type: "shadow" },
          valueFormatter: (value) => `${digits(value)} ${unit.name}` },
        xAxis: axis(look, { type: "value", name: `memory, ${unit.name}`, min: 0 }),
        yAxis: names(look, runs.map((run) => run.name)),
        series: categories.map((category, i) => ({
          name: category, type: "bar", stack: "memory", barMaxWidth: 18,
          itemStyle: { color: partColor(i) },
          data: runs.map((run) => run.memory_at_peak.bytes[category] / unit.size),
        })),
      }),
      head: ["run", ...categories, "sum"],
      rows: runs.map((run) => [run.name,
        ...categories.map((category) => text("bytes", run.memory_at_peak.bytes[category])),
        text("bytes", run.memory_at_peak.total)]),
      open: true,
    };
  }

  // Memory over time; `peak`: end of the vertical axis in bytes, the same for all runs.
  function memory(run, samples, peak, title, note) {
    const unit = unitFor("bytes", peak);
    const begin = samples.time_s[0];
    const time = unitFor("seconds", samples.time_s.at(-1) - begin);
    return {
      title, note,
      height: 300,
      option: (look) => ({
        ...base(look),
        legend: { ...base(look).legend, icon: "roundRect", itemWidth: 12 },
        tooltip: { ...base(look).tooltip,
          valueFormatter: (value) => `${digits(value)} ${unit.name}` },
        xAxis: axis(look, { type: "value", name: `time, ${time.name}`, min: "dataMin",
          max: "dataMax",
          axisLabel: { color: look.faint, hideOverlap: true, formatter: digits } }),
        yAxis: upright(look, { name: `memory, ${unit.name}`, min: 0, max: peak / unit.size,
          axisLabel: { color: look.faint, formatter: digits } }),
        series: categories.map((category, i) => ({
          name: category, type: "line", stack: "memory", step: "end", symbol: "none",
          color: partColor(i), lineStyle: { width: 0 }, areaStyle: { opacity: 0.9 },
          data: samples.bytes[category].map((bytes, j) =>
            [(samples.time_s[j] - begin) / time.size, bytes / unit.size]),
        })),
      }),
      head: ["category", "minimum", "maximum", "last"],
      rows: categories.map((category) => {
        const bytes = samples.bytes[category];
        return [category, text("bytes", Math.min(...bytes)), text("bytes", most(bytes)),
          text("bytes", bytes.at(-1))];
      }),
    };
  }

  // Efficiencies of `gradwire bench step`, each with the upper bound of its links.
  function ladder({ rows }, title) {
    const label = (row) => (row.system === "gradwire" ? row.label : `${row.system}: ${row.label}`);
    const bound = (look) => ({
      name: "bound: bytes sent fill the link", type: "custom", z: 5,
      itemStyle: { color: look.text }, encode: { x: 1, y: 0 },
      data: rows.map((row, i) => [i, 100 * row.bound]).filter(([i]) => !missing(rows[i].bound)),
      renderItem: (params, api) => {
        const [x, y] = api.coord([api.value(1), api.value(0)]);
        return { type: "line", shape: { x1: x, y1: y - 12, x2: x, y2: y + 12 },
          style: { stroke: look.text, lineWidth: 2 } };
      },
    });
    const bars = (look, name, fill, ours) => ({
      name, type: "bar", barMaxWidth: 18, barGap: "-100%", itemStyle: { color: fill },
      label: { show: true, position: "insideRight", color: "#ffffff", fontWeight: 600,
        formatter: ({ value }) => `${Number(value).toFixed(1)} %` },
      data: rows.map((row) => {
        if ((row.system === "gradwire") !== ours) return null;
        const beside = { position: "right", color: look.text };
        return { value: 100 * row.eta, ...(row.eta < 0.1 ? { label: beside } : {}) };
      }),
    });
    const others = rows.some((row) => row.system !== "gradwire");
    const bounds = rows.some((row) => !missing(row.bound));
    return {
      title,
      height: barsHeight(rows.length) + 10,
      option: (look) => ({
        ...base(look),
        grid: lying(look),
        tooltip: { ...base(look).tooltip, axisPointer: { type: "shadow" },
          valueFormatter: (value) => (missing(value) ? "–" : `${digits(value)} %`) },
        xAxis: axis(look, { type: "value", name: "η, %", min: 0, max: 100 }),
        yAxis: names(look, rows.map(label)),
        series: [bars(look, "gradwire", "#0072b2", true),
          ...(others ? [bars(look, "others", "#b35900", false)] : []),
          ...(bounds ? [bound(look)] : [])],
      }),
      head: ["case", "η", "bound", "step alone", "step", "exposed", "sent a step", "ranks"],
      rows: rows.map((row) => [label(row), text("percent", row.eta), text("percent", row.bound),
        ...[row.single_ms, row.step_ms, row.exposed_ms].map((ms) => text("seconds", ms / 1e3)),
        text("bytes", row.bytes_per_step), String(row.ranks)]),
      open: true,
    };
  }

  return {
    curves, pairs, fine, legendLines, losses, testLosses, learningRates, spreads, histogram, shares,
    memoryAtPeak, memory, ladder,
  };
})();
