"use strict";

// Page of a plan: sliders, the results at their positions, and efficiency by nodes. All numbers
// come from the table, interpolated between its points.
(() => {
  const { data, color, digits, text, element, section, figure, table } = gradwire;
  const { base, axis, upright } = gradwire;
  const { nodes, networks, batches, codecs } = data.axes;

  // --- the table ---

  const strides = [networks.length * batches.length * codecs.length,
    batches.length * codecs.length, codecs.length, 1];

  const entry = (column, n, w, b, c) =>
    data.table[column][n * strides[0] + w * strides[1] + b * strides[2] + c];

  // Position of a value on an ascending axis of powers of two: the index before it, and the
  // fraction beyond.
  function place(list, value) {
    const x = Math.log2(Math.min(Math.max(value, list[0]), list[list.length - 1]));
    let i = 0;
    while (i + 2 < list.length && Math.log2(list[i + 1]) <= x) i += 1;
    if (list.length === 1) return { i: 0, part: 0 };
    const [low, high] = [Math.log2(list[i]), Math.log2(list[i + 1])];
    return { i, part: (x - low) / (high - low) };
  }

  const mix = (a, b, part) => (part === 0 ? a : part === 1 ? b : a + (b - a) * part);
  // Quantities that double with nodes or batch are linear in the logarithm.
  const mixLog = (a, b, part) => (a > 0 && b > 0
    ? 2 ** mix(Math.log2(a), Math.log2(b), part) : mix(a, b, part));

  function value(column, at) {
    const n = place(nodes, at.nodes), b = place(batches, at.batch);
    const between = column === "eta" ? mix : mixLog;
    const row = (i) => (b.part === 0 ? entry(column, i, at.network, b.i, at.codec)
      : between(entry(column, i, at.network, b.i, at.codec),
        entry(column, i, at.network, b.i + 1, at.codec), b.part));
    return n.part === 0 ? row(n.i) : between(row(n.i), row(n.i + 1), n.part);
  }

  const bottleneck = (at) => {
    const n = place(nodes, at.nodes), b = place(batches, at.batch);
    return data.bottlenecks[entry("bottleneck", n.i + (n.part > 0.5 ? 1 : 0), at.network,
      b.i + (b.part > 0.5 ? 1 : 0), at.codec)];
  };

  // --- sliders ---

  const at = {
    nodes: data.start.nodes, batch: data.start.batch,
    network: networks.indexOf(data.start.network), codec: codecs.indexOf(data.start.codec),
  };

  // A slider over `range`; `show(position)` returns its label.
  function slider(id, label, range, position, show, take) {
    const said = element("output", {}, show(position));
    const input = element("input", { id, type: "range", ...range });
    input.value = position;
    input.setAttribute("aria-valuetext", show(position));
    input.addEventListener("input", () => {
      take(Number(input.value));
      said.textContent = show(Number(input.value));
      input.setAttribute("aria-valuetext", said.textContent);
      update();
    });
    return element("label", { className: "control" }, element("span", {}, label), input, said);
  }

  const doubles = (list) => ({
    min: Math.log2(list[0]), max: Math.log2(list[list.length - 1]), step: "any",
  });
  const whole = (x) => Math.max(1, Math.round(2 ** x));

  const controls = element("div", { className: "controls" },
    slider("nodes", "nodes", doubles(nodes), Math.log2(at.nodes), (x) => String(whole(x)),
      (x) => { at.nodes = whole(x); }),
    slider("network", "network", { min: 0, max: networks.length - 1, step: 1 }, at.network,
      (i) => networks[i], (i) => { at.network = i; }),
    slider("batch", "batch per pass", doubles(batches), Math.log2(at.batch),
      (x) => digits(2 ** x), (x) => { at.batch = 2 ** x; }),
    slider("codec", "codec", { min: 0, max: codecs.length - 1, step: 1 }, at.codec,
      (i) => codecs[i], (i) => { at.codec = i; }));

  // --- answers ---

  const answers = element("dl", { className: "answers" });
  const answer = (id, name) => {
    const said = element("dd", { id });
    answers.append(element("div", {}, element("dt", {}, name), said));
    return said;
  };
  const said = {
    eta: answer("eta", "efficiency"), step: answer("step", "a step"),
    rate: answer("rate", "samples per second"), memory: answer("memory", "memory of a device"),
    bottleneck: answer("bottleneck", "bottleneck"),
  };

  function update() {
    said.eta.textContent = text("percent", value("eta", at));
    said.step.textContent = text("seconds", value("step", at));
    said.rate.textContent = digits(value("rate", at));
    const memory = value("memory", at), fits = memory <= data.device_memory;
    said.memory.textContent = text("bytes", memory) + (fits ? "" : ": does not fit");
    said.memory.classList.toggle("wrong", !fits);
    said.bottleneck.textContent = bottleneck(at);
    gradwire.redraw();
  }

  // --- chart ---

  const curve = (network) =>
    nodes.map((count) => [count, 100 * value("eta", { ...at, nodes: count, network })]);

  const chart = figure({
    title: "Efficiency against nodes",
    note: "Each device keeps its batch. The wide line is the selected network.",
    height: 420,
    option: (look) => ({
      ...base(look),
      xAxis: axis(look, { type: "log", logBase: 2, name: "nodes", min: nodes[0],
        max: nodes[nodes.length - 1] }),
      yAxis: upright(look, { name: "efficiency, %", min: 0, max: 100 }),
      series: networks.map((name, index) => ({
        name, type: "line", symbol: "none", color: color(index), data: curve(index),
        lineStyle: { width: index === at.network ? 4 : 1.5 },
        markPoint: index !== at.network ? undefined : {
          symbol: "circle", symbolSize: 12, label: { show: false },
          data: [{ coord: [at.nodes, 100 * value("eta", at)] }],
        },
      })),
    }),
  });

  // --- pipeline, ZeRO, data parallelism ---

  const memoryText = (stages) => stages.map((bytes) => text("bytes", bytes)).join(", ");

  const waysTable = () => table(
    ["", "a step", "bubble", "activations", "gradients", "memory of a rank, by stage"],
    data.ways.map((way) => [way.name, text("seconds", way.step), text("seconds", way.bubble),
      text("seconds", way.activations), text("seconds", way.exposed),
      memoryText(way.memory) + (way.fits ? "" : ": does not fit")]));

  function drawing(svg) {
    const parsed = new DOMParser().parseFromString(svg, "image/svg+xml").documentElement;
    return element("div", { className: "drawing" }, document.importNode(parsed, true));
  }

  function addWays() {
    if (data.ways.length === 0) return;
    const place = section("ways", "Pipeline, ZeRO or data parallelism",
      `The same devices and global batch as ${data.start.nodes} nodes on ${data.start.network}, ` +
      "batch and options of the command; the fastest that fits first. Bubble: waiting on an ideal " +
      "network; activations and gradients: waiting for the network.");
    place.append(waysTable());
    for (const way of data.ways) {
      place.append(element("p", {}, way.why ? `${way.text} (${way.why}).` : `${way.text}.`));
      if (way.drawing) place.append(drawing(way.drawing));
    }
  }

  document.head.append(element("style", {}, `
    .drawing { overflow-x: auto; }`));
  document.head.append(element("style", {}, `
    .controls { display: grid; gap: 8px 24px; grid-template-columns: repeat(auto-fit, minmax(300px, 1fr)); }
    .control { display: grid; grid-template-columns: 7em 1fr 5em; gap: 10px; align-items: center; }
    .control output { font-variant-numeric: tabular-nums; }
    .answers { display: flex; flex-wrap: wrap; gap: 8px 36px; margin: 16px 0; }
    .answers dt { color: var(--faint); font-size: 0.85rem; }
    .answers dd { margin: 0; font-size: 1.3rem; font-variant-numeric: tabular-nums; }
    .answers dd.wrong { color: #d55e00; }`));
  document.getElementById("page").append(
    element("h1", {}, `Will ${data.model} scale?`), element("p", { className: "note" }, data.about));
  section("plan", "Prediction", "Interpolated between the points of a table computed by " +
    "gradwire plan, with nodes and batches in powers of two.").append(controls, answers, chart);
  addWays();
  gradwire.drawAll();
  update();
  gradwire.plan = { at, value, update };
})();
