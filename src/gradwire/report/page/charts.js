"use strict";

// Shared by all pages: the data, colors, formatted quantities, tables and figures with a chart.
// Text from the data is inserted as text, never as markup.
const gradwire = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);

  // Distinguishable with color blindness. Runs have the colors of Okabe and Ito, "Color universal
  // design" (2008); parts of a run have those of Tol, "Colour schemes" (2021), so that no color has
  // two meanings.
  const RUNS = ["#0072b2", "#d55e00", "#009e73", "#e69f00", "#cc79a7", "#56b4e9", "#7d7d7d"];
  const DASHES = ["solid", "dashed", "dotted"];
  const PARTS = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#aa3377", "#bbbbbb"];

  const color = (index) => RUNS[index % RUNS.length];
  const dash = (index) => DASHES[Math.floor(index / RUNS.length) % DASHES.length];
  const partColor = (index) => PARTS[index % PARTS.length];

  // --- quantities ---

  // Three significant digits.
  const digits = (value) => (value === 0 ? "0"
    : Number(value.toPrecision(3)).toLocaleString("en", { maximumFractionDigits: 9 }));

  const UNITS = {
    bytes: [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10], ["B", 1]],
    seconds: [["s", 1], ["ms", 1e-3], ["µs", 1e-6]],
    percent: [["%", 1e-2]],
    number: [["", 1]],
  };

  // Returns the largest unit that is not above `value`: {name, size}.
  function unitFor(kind, value) {
    const units = UNITS[kind];
    const [name, size] = units.find(([, s]) => Math.abs(value) >= s) ?? units[units.length - 1];
    return { name, size };
  }

  // The name of an axis: "memory, MiB"; "rounds" of numbers without a unit.
  const inUnit = (name, unit) => (unit.name ? `${name}, ${unit.name}` : name);

  const missing = (value) => value === null || value === undefined;

  function text(kind, value) {
    if (missing(value)) return "–";
    if (kind === "percent") return `${(100 * value).toFixed(1)} %`;
    if (kind === "number") return digits(value);
    const unit = unitFor(kind, value);
    return `${digits(value / unit.size)} ${unit.name}`;
  }

  // --- the page ---

  function element(tag, properties = {}, ...children) {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children.filter((child) => !missing(child)));
    return made;
  }

  // `head`: column titles; the first column names the row. Cells are text or nodes.
  function table(head, rows) {
    const cell = (tag, content, scope) => {
      const made = element(tag, {}, content);
      if (scope) made.scope = scope;
      return made;
    };
    const line = ([first, ...rest]) =>
      element("tr", {}, cell("th", first, "row"), ...rest.map((content) => cell("td", content)));
    return element("div", { className: "scroll" },
      element("table", {},
        element("thead", {}, element("tr", {}, ...head.map((name) => cell("th", name, "col")))),
        element("tbody", {}, ...rows.map(line))));
  }

  function section(id, title, note) {
    const made = element("section", { id }, element("h2", {}, title),
      element("p", { className: "note" }, note));
    document.getElementById("page").append(made);
    return made;
  }

  const swatch = (background) => {
    const made = element("span", { className: "swatch" });
    made.style.background = background;
    made.setAttribute("aria-hidden", "true");
    return made;
  };

  // --- charts ---

  const charts = [];

  const theme = () => {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(name).trim();
    return { text: of("--text"), faint: of("--faint"), line: of("--line"), back: of("--card") };
  };

  const draw = ({ chart, option }) => chart.setOption(option(theme()), { notMerge: true });

  // A figure: `title`, `note`, a chart of `option(theme)`, `height` pixels high, and the same
  // values as a table.
  function figure({ title, mark, note, height, option, head, rows, open = false }) {
    const plot = element("div", { className: "plot" });
    plot.style.height = `${height}px`;
    plot.setAttribute("role", "img");
    plot.setAttribute("aria-label", `Chart: ${title}. The table below lists its values.`);
    const made = element("figure", {},
      element("figcaption", {}, element("h3", {}, mark, title),
        note ? element("p", { className: "note" }, note) : null),
      plot,
      head ? element("details", { open }, element("summary", {}, "Figures"), table(head, rows))
        : null);
    charts.push({ plot, option });
    return made;
  }

  // Draws all figures, which must be in the page, and resizes them with it.
  function drawAll() {
    for (const item of charts) {
      item.chart = echarts.init(item.plot, null, { renderer: "svg" });
      draw(item);
      new ResizeObserver(() => item.chart.resize()).observe(item.plot);
    }
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", () => charts.forEach(draw));
    const print = (printing) => {
      document.documentElement.classList.toggle("printing", printing);
      for (const item of charts) {
        item.chart.resize();
        draw(item);
        item.chart.getZr().flush();  // Flush: printing does not wait for the next frame.
      }
    };
    addEventListener("beforeprint", () => print(true));
    addEventListener("afterprint", () => print(false));
    document.documentElement.dataset.charts = String(charts.length);  // Marks that all charts are
                                                                      // drawn.
  }

  // Called after data that options depend on has changed.
  const redraw = () => charts.forEach(draw);

  // --- parts of options ---

  const base = (look) => ({
    animation: false,
    textStyle: { color: look.text, fontFamily: "inherit" },
    tooltip: {
      trigger: "axis", confine: true, backgroundColor: look.back, borderColor: look.line,
      textStyle: { color: look.text, fontSize: 12 },
    },
    legend: {
      top: 0, left: 0, itemHeight: 10, itemWidth: 22, itemGap: 9, textStyle: { color: look.text },
    },
    grid: { left: 8, right: 30, top: 56, bottom: 30, containLabel: true },
  });

  const axis = (look, more) => ({
    nameLocation: "middle", nameGap: 28, nameTextStyle: { color: look.faint },
    axisLabel: { color: look.faint, hideOverlap: true },
    axisLine: { lineStyle: { color: look.line } },
    splitLine: { lineStyle: { color: look.line, opacity: 0.6 } },
    ...more,
  });

  // A vertical axis has its name above its end, written horizontally, from the axis on: further
  // left the page would cut it.
  const upright = (look, more) => axis(look, {
    type: "value", nameLocation: "end", nameGap: 10,
    nameTextStyle: { color: look.faint, align: "left" }, ...more,
  });

  // Keep both ends: long names often differ at their end.
  const shortened = (name) =>
    (name.length > 60 ? `${name.slice(0, 29)}…${name.slice(-30)}` : name);

  // Names from top to bottom, for horizontal bars.
  const names = (look, list) => axis(look, {
    type: "category", data: list.map(shortened), inverse: true, axisTick: { show: false },
    axisLabel: {
      color: look.text, overflow: "break", lineHeight: 13, interval: 0,
      width: Math.min(210, 20 + 7 * Math.max(...list.map((name) => name.length))),
    },
  });

  const barsHeight = (count) => 74 + 30 * count;

  return {
    data, color, dash, partColor, digits, unitFor, inUnit, text, missing, element, table, section,
    swatch, figure, drawAll, redraw, base, axis, upright, names, barsHeight,
  };
})();
