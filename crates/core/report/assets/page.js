"use strict";
(() => {
  const PLOTS = JSON.parse(document.getElementById("plots").textContent);
  const WORDS = JSON.parse(document.getElementById("words").textContent);
  const said = (text, values) => text.replace(/\{([a-z]+)\}/g, (_, name) => values[name] ?? "");
  const ROOT = document.documentElement;
  // ECharts writes it into attributes of SVG as it is: no double quotes.
  const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Hiragino Sans', 'Noto Sans CJK JP', 'Noto Sans JP', 'Yu Gothic', Meiryo, 'DejaVu Sans', sans-serif";
  const SVG = "http://www.w3.org/2000/svg";

  // Six colours that stay apart for colour-blind eyes (after Okabe and Ito), lighter ones on dark.
  const LIGHT = {
    colours: ["#0072b2", "#d55e00", "#009e73", "#b5568f", "#8a6d00", "#332288"],
    ink: "#1c2127", soft: "#5b6570", rule: "#e3e5e8", axis: "#aab2ba", card: "#ffffff",
  };
  const DARK = {
    colours: ["#56b4e9", "#ff8f4a", "#2dc5a0", "#e2a0c8", "#dfc04a", "#a9a5ff"],
    ink: "#e4e7ea", soft: "#9aa5b1", rule: "#2f353c", axis: "#59636e", card: "#1b1f24",
  };
  // One shape a slot: drawn by ECharts under the name, and in the legend as a path of a 10 by 10 square.
  const SHAPES = [
    ["circle", "M5 1a4 4 0 1 0 .01 0z"],
    ["rect", "M1.4 1.4h7.2v7.2H1.4z"],
    ["triangle", "M5 .8L9.4 9H.6z"],
    ["diamond", "M5 .2L9.8 5L5 9.8L.2 5z"],
    ["path://M0 0H10L5 9z", "M.6 1H9.4L5 9.2z"],
    ["path://M3 0H7V3H10V7H7V10H3V7H0V3H3z", "M3.3 .5H6.7V3.3H9.5V6.7H6.7V9.5H3.3V6.7H.5V3.3H3.3z"],
  ];
  const DASHES = { measured: "solid", simulated: "solid", synthetic: [2, 3] };
  const AGAIN = [[12, 3, 3, 3], [5, 2], [9, 2, 2, 2, 2, 2], [3, 2], [14, 4]];
  // Several published series of one owner.
  const PRINTED = [[7, 4], [2, 3], [11, 3, 3, 3]];
  const CROSS = "path://M0 2L2 0L5 3L8 0L10 2L7 5L10 8L8 10L5 7L2 10L0 8L3 5z";
  // More points than these get no symbol each, but a few for the whole line.
  const FEW = 60;
  // More points than these are drawn on a canvas: SVG gets slow.
  const MANY = 4000;

  // ---- What is drawn: points divided as their axes are, with gaps where an axis has no place for them.
  const placed = (axis, value) => {
    const fits = Number.isFinite(value) && Math.abs(value) <= 1e300 && (!axis.log_base || value >= 1e-300);
    return fits ? value / axis.divisor : null;
  };
  for (const { x, y, series } of PLOTS) {
    for (const [at, one] of series.entries()) {
      one.turn = series.slice(0, at).filter(({ mark, slot }) => mark === one.mark && slot === one.slot).length;
      one.drawn ??= one.points.map((point) => [placed(x, point[0]), placed(y, point[1])]).filter(([across]) => across !== null);
    }
  }

  // A whisker is found by its point, as ECharts hands out points alone.
  for (const { series } of PLOTS) {
    for (const one of series) one.ends_of = new Map(one.whiskers.map((ends, at) => [String(one.drawn[at]), ends]));
  }

  // ---- Numbers, as the terminal shows them.
  const digits = (value, count) => {
    if (!Number.isFinite(value)) return "n/a";
    if (value === 0) return "0";
    const size = Math.floor(Math.log10(Math.abs(value)));
    if (size < -5 || size >= 15) return String(Number(value.toPrecision(count)).toExponential()).replace("e+", "e");
    return new Intl.NumberFormat("en", { maximumSignificantDigits: count }).format(value);
  };
  const stepOf = (unit, value) => {
    const size = Math.abs(value);
    if (!unit.steps.length || size === 0 || (unit.prefix && size < 10000)) return null;
    return unit.steps.findLast(([times]) => size >= times * 0.9999999) ?? unit.steps[0];
  };
  const short = (unit, value, count = 4) => {
    const step = stepOf(unit, value);
    return step && step[1] ? `${digits(value / step[0], count)} ${step[1]}` : digits(value, count);
  };
  const inUnit = (unit, value) => {
    const number = short(unit, value);
    if (unit.name === "%") return `${number}%`;
    return unit.name && (unit.prefix || !unit.steps.length) ? `${number} ${unit.name}` : number;
  };
  const tick = (axis, value) => (axis.log_base || axis.unit.prefix ? short(axis.unit, value) : digits(value, 6));
  const escaped = (text) => String(text).replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);

  // ---- How a series looks.
  const look = (series, theme) => {
    const ghost = series.mark === "published";
    const colour = theme.colours[series.slot % theme.colours.length];
    // From the seventh on colours come again, with other shapes and dashes, and bars with stripes.
    const again = Math.floor(series.slot / theme.colours.length);
    const [symbol, path] = SHAPES[(series.slot + again) % SHAPES.length];
    const dash = ghost ? PRINTED[(series.turn ?? 0) % PRINTED.length] : again ? AGAIN[(again - 1) % AGAIN.length] : DASHES[series.mark];
    const hollow = series.mark !== "measured";
    return { ghost, again, colour, symbol, path, dash, hollow, width: series.mark === "measured" ? 2.6 : ghost ? 1.6 : 2 };
  };
  const element = (name, attributes, parent) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    parent?.append(made);
    return made;
  };
  let hatches = 0;
  const swatch = (kind, series, theme) => {
    const { ghost, again, colour, path, dash, hollow, width } = look(series, theme);
    const svg = element("svg", { width: 26, height: 12, viewBox: "0 0 26 12", "aria-hidden": "true" });
    const dashes = Array.isArray(dash) ? { "stroke-dasharray": dash.join(" ") } : {};
    if (kind === "bar") {
      element("rect", { x: 6, y: 1, width: 14, height: 10, fill: ghost ? "none" : colour, stroke: colour, "fill-opacity": series.mark === "simulated" ? 0.75 : 1, ...(ghost ? { "stroke-dasharray": ["3 2", "1 2", "6 2"][(series.turn ?? 0) % 3] } : {}) }, svg);
      if (series.mark === "synthetic" || (again && !ghost)) {
        const id = `hatch-${hatches++}`;
        const pattern = element("pattern", { id, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: `rotate(${again ? 90 + 30 * (again - 1) : 45})` }, element("defs", {}, svg));
        element("rect", { width: 2, height: 5, fill: theme.card }, pattern);
        element("rect", { x: 6, y: 1, width: 14, height: 10, fill: `url(#${id})` }, svg);
      }
      return svg;
    }
    if (kind !== "scatter") element("path", { d: "M0 6H26", stroke: colour, "stroke-width": width, fill: "none", ...dashes }, svg);
    element("path", { d: path, transform: "translate(8 1)", fill: hollow ? theme.card : colour, stroke: colour, "stroke-width": 1.6, ...(kind === "scatter" && series.mark === "synthetic" ? { "stroke-dasharray": "2 1.5" } : {}) }, svg);
    return svg;
  };

  // ---- What ECharts is told.
  const pen = document.createElement("canvas").getContext("2d");
  const textWidth = (text) => {
    pen.font = `12px ${FONT}`;
    return pen.measureText(text).width;
  };
  // Long names are cut in their middle: their end may tell them apart.
  const shortened = (name) => (name.length > 22 ? `${name.slice(0, 13)}…${name.slice(-8)}` : name);
  const categoryLabels = (all, width) => {
    const names = all.map(shortened);
    const slot = (width - 70) / names.length;
    const widest = (texts) => Math.max(0, ...texts.map(textWidth));
    if (widest(names) + 8 <= slot) return { interval: 0, rotate: 0 };
    if (names.every((name) => widest(name.split(/\s+/)) + 8 <= slot && textWidth(name) < 2.5 * slot)) {
      return { interval: 0, rotate: 0, width: slot - 6, overflow: "break" };
    }
    return { interval: slot < 16 ? Math.ceil(16 / slot) - 1 : 0, rotate: slot < 26 ? 90 : 40 };
  };
  const axisOption = (axis, theme) => ({
    name: axis.title,
    nameTextStyle: { color: theme.soft, fontFamily: FONT, fontSize: 12 },
    axisLine: { show: true, onZero: false, lineStyle: { color: theme.axis } },
    axisTick: { show: true, lineStyle: { color: theme.axis } },
    axisLabel: { color: theme.soft, fontFamily: FONT, fontSize: 12, hideOverlap: true, formatter: (value) => tick(axis, value) },
    splitLine: { show: true, lineStyle: { color: theme.rule } },
    axisPointer: { label: { show: false } },
  });
  const valueAxis = (axis, theme) => {
    const option = axisOption(axis, theme);
    if (axis.log_base) {
      option.axisLabel.customValues = axis.ticks;
      option.axisTick.customValues = axis.ticks;
      // Bars begin at the end of the axis, as in the terminal; bars of multiples begin at one.
      return { ...option, type: "log", logBase: axis.log_base, min: axis.low, max: axis.high, startValue: axis.origin };
    }
    return { ...option, type: "value", min: axis.low, max: axis.high, ...(axis.origin > 0 ? { startValue: axis.origin } : {}) };
  };
  const acrossAxis = (plot, theme, width) => {
    const common = { nameLocation: "middle", nameGap: 32 };
    const option = plot.categories ? axisOption(plot.x, theme) : valueAxis(plot.x, theme);
    option.axisLabel.margin = 10;
    if (!plot.categories) return { ...option, ...common, splitLine: { show: false } };
    option.axisLabel.formatter = (name) => shortened(name);
    Object.assign(option.axisLabel, categoryLabels(plot.categories, width), { hideOverlap: false });
    option.axisTick = { show: plot.categories.length > 1, lineStyle: { color: theme.axis } };
    return { ...option, ...common, type: "category", data: plot.categories, splitLine: { show: false } };
  };
  // Lines from end to end of each whisker, with caps. ECharts puts a bar's own beside the middle of its group.
  // Of bars, the end that points away from the axis has the bar's label, if it has one.
  const whiskers = (series, theme, bars, label) => {
    if (series.drawn.length > FEW * 4) return [];
    const { colour } = look(series, theme);
    const line = { color: bars ? theme.ink : colour, width: 1.3, type: "solid", opacity: 0.85 };
    const cap = { symbol: "rect", symbolSize: [bars ? 9 : 7, 1.3], itemStyle: { color: line.color, opacity: 0.85 } };
    return series.whiskers.flatMap((ends, at) => {
      if (!ends) return [];
      const [x, y] = series.drawn[at];
      const [from, to] = y < 0 ? [ends[1], ends[0]] : ends;
      const end = (place) => ({ coord: [x, place], lineStyle: line, ...cap });
      const text = label ? { label: { ...label, show: true, position: "end", distance: 3, formatter: () => label.of(y) } } : {};
      return [[{ ...end(from), ...text }, end(to)]];
    });
  };
  const barLabel = (plot, y) => short(plot.y.unit, y * plot.y.divisor, 3);
  // Whether each bar's label has room beside those of the bars next to it.
  const labelsFit = (plot, width) => {
    const bar = ((width - 70) / Math.max(1, plot.categories.length) / Math.max(1, plot.series.length)) * 0.8;
    const labels = plot.series.flatMap(({ drawn }) => drawn.map(([, y]) => (Number.isFinite(y) && y !== null ? textWidth(barLabel(plot, y)) : 0)));
    return Math.max(0, ...labels) <= bar + 6;
  };
  const barSeries = (plot, series, theme, labelled) => {
    const { ghost, again, colour } = look(series, theme);
    const text = { color: theme.soft, fontFamily: FONT, fontSize: 11, of: (y) => barLabel(plot, y) };
    const hatch = { symbol: "rect", symbolSize: 1, color: theme.card, dashArrayX: [1, 0], dashArrayY: [2, 4], rotation: again ? (Math.PI / 6) * (again - 1) : -Math.PI / 4 };
    // A place without a value says why there is none, from the bottom of the axis upwards.
    const gaps = series.gaps.map(([x, why]) => ({
      value: [x, plot.y.origin || plot.y.low],
      label: { show: true, position: "insideBottomLeft", rotate: 90, align: "left", verticalAlign: "middle", color: colour, distance: 4, formatter: `\u00d7 ${why}` },
    }));
    const shown = ghost || labelled;
    return {
      type: "bar", name: series.label, barMaxWidth: 56, barGap: "8%", barCategoryGap: "32%",
      data: [...series.drawn.map(([x, y], at) => ({ value: [x, y], label: { show: shown && !series.whiskers[at], position: y < 0 ? "bottom" : "top" } })), ...gaps],
      itemStyle: {
        color: ghost ? "transparent" : colour, borderColor: colour, borderWidth: ghost ? 1.4 : 1,
        borderType: ghost ? ["dashed", "dotted", [8, 3]][(series.turn ?? 0) % 3] : "solid", opacity: series.mark === "simulated" ? 0.8 : 1,
        decal: series.mark === "synthetic" || (again && !ghost) ? hatch : null,
      },
      markLine: { silent: true, symbol: "none", label: { show: false }, data: [...(plot.y.low < 0 ? [{ yAxis: 0 }] : []), ...whiskers(series, theme, true, labelled ? text : null)], lineStyle: { color: theme.axis, type: "solid", width: 1 } },
      label: { ...text, show: shown, formatter: ({ value }) => text.of(value[1]) },
      // A published number, and the reason for a gap, are never left out.
      labelLayout: { hideOverlap: !ghost && !gaps.length },
      emphasis: { focus: "series" },
    };
  };
  const pointSeries = (plot, series, theme) => {
    const { ghost, colour, symbol, dash, hollow, width } = look(series, theme);
    const dense = series.drawn.length > FEW && plot.kind !== "scatter";
    const common = {
      // Published signs are below the others and larger, so that none hides the other.
      name: series.label, symbol, symbolSize: (plot.kind === "scatter" ? 8 : 7) + (ghost ? 5 : 0), z: ghost ? 2 : 3,
      itemStyle: { color: hollow ? theme.card : colour, borderColor: colour, borderWidth: 1.6, borderType: plot.kind === "scatter" && series.mark === "synthetic" ? [2, 1.5] : "solid" },
      emphasis: { focus: "series" },
      markLine: { silent: true, label: { show: false }, data: whiskers(series, theme, false), animation: false },
    };
    if (plot.kind === "scatter") return [{ ...common, type: "scatter", data: series.drawn }];
    const line = {
      ...common, type: "line", data: series.drawn, step: plot.kind === "step" ? "end" : false, showSymbol: !dense,
      lineStyle: { color: colour, width, type: dash }, sampling: series.drawn.length > MANY ? "lttb" : undefined,
      // Single published values have their number, as published bars do.
      label: { show: ghost && series.drawn.length <= 3, position: "left", color: theme.soft, fontFamily: FONT, fontSize: 11, formatter: ({ value }) => barLabel(plot, value[1]) },
    };
    const missing = {
      ...common, markLine: undefined, id: `${series.slot}-${series.mark}-gaps`, type: "scatter", symbol: CROSS, symbolSize: 10, z: 5,
      data: series.gaps.map(([x]) => [x, plot.y.low]), itemStyle: { color: colour }, tooltip: { show: false },
      label: { show: true, position: "top", rotate: 90, align: "left", verticalAlign: "middle", color: colour, fontFamily: FONT, fontSize: 11, formatter: ({ dataIndex }) => series.gaps[dataIndex][1] },
    };
    const gaps = series.gaps.length ? [missing] : [];
    if (!dense || plot.series.length === 1) return [line, ...gaps];
    // A few symbols tell dense lines apart. They are a series of their own, that the tooltip leaves out.
    const gap = Math.ceil(series.drawn.length / 8);
    const some = series.drawn.filter((_, at) => at % gap === Math.floor((gap * (series.slot % 6 + 0.5)) / 6));
    return [line, ...gaps, { ...common, markLine: undefined, id: `${series.slot}-${series.mark}-symbols`, type: "line", data: some, silent: true, lineStyle: { opacity: 0 }, z: 4, tooltip: { show: false } }];
  };
  const tooltip = (plot, theme) => {
    const across = (x) => (plot.categories ? plot.categories[x] : inUnit(plot.x.unit, x * plot.x.divisor));
    const row = ({ seriesName, value }, alike) => {
      const series = plot.series.find(({ label }) => label === seriesName);
      const name = alike ? seriesName : said(WORDS.at, { name: seriesName, place: across(value[0]) });
      const shown = (y) => inUnit(plot.y.unit, y * plot.y.divisor);
      const ends = series.ends_of.get(String(value));
      const number = ends ? said(WORDS.range, { value: shown(value[1]), low: shown(ends[0]), high: shown(ends[1]) }) : shown(value[1]);
      return `<div>${swatch(plot.kind, series, theme).outerHTML}<span>${escaped(name)}</span><em>${escaped(number)}</em></div>`;
    };
    return {
      trigger: plot.kind === "scatter" ? "item" : "axis", confine: true, transitionDuration: 0,
      axisPointer: { type: plot.kind === "bar" ? "shadow" : "line", lineStyle: { color: theme.axis }, shadowStyle: { color: theme.rule, opacity: 0.4 } },
      backgroundColor: theme.card, borderColor: theme.rule, textStyle: { color: theme.ink, fontFamily: FONT }, padding: [6, 10],
      formatter: (hit) => {
        const rows = [hit].flat().filter(({ seriesId, value }) => !/-(symbols|gaps)$/.test(seriesId) && value && Number.isFinite(value[1]));
        if (!rows.length) return "";
        // Each line shows its own nearest point: these say where they are, unless that is the same for all.
        const alike = rows.every(({ value }) => value[0] === rows[0].value[0]);
        const body = rows.map((one) => row(one, alike));
        const name = plot.categories ? "" : plot.x.name ? `${plot.x.name}: ` : "";
        return `<div class="tip"><b>${escaped(name + across(rows[0].value[0]))}</b>${body.join("")}</div>`;
      },
    };
  };
  const option = (plot, theme, width) => {
    const bars = plot.kind === "bar";
    const labelled = bars && labelsFit(plot, width);
    const zoom = { type: "inside", filterMode: "none", zoomOnMouseWheel: "ctrl", moveOnMouseMove: "shift", moveOnMouseWheel: false, preventDefaultMouseMove: false };
    return {
      animation: false, backgroundColor: "transparent", textStyle: { fontFamily: FONT },
      grid: { left: 4, right: 24, top: 12, bottom: 4, outerBoundsMode: "same", outerBoundsContain: "all" },
      legend: { show: false },
      toolbox: { show: true, top: -60, showTitle: false, feature: { dataZoom: { filterMode: "none", yAxisIndex: bars ? false : "all", brushStyle: { color: theme.axis, opacity: 0.25 } } } },
      dataZoom: [{ ...zoom, xAxisIndex: 0 }, { ...zoom, yAxisIndex: 0, zoomOnMouseWheel: bars ? false : "ctrl" }],
      tooltip: tooltip(plot, theme),
      xAxis: acrossAxis(plot, theme, width),
      yAxis: { ...valueAxis(plot.y, theme), nameLocation: "end", nameGap: 14, nameTextStyle: { color: theme.soft, fontFamily: FONT, fontSize: 12, align: "left" } },
      series: plot.series.flatMap((series) => (bars ? [barSeries(plot, series, theme, labelled)] : pointSeries(plot, series, theme))),
    };
  };

  // ---- Saving.
  const slug = (title) => title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 60) || "plot";
  const save = (name, content, type) => {
    const link = document.createElement("a");
    link.href = type ? URL.createObjectURL(new Blob([content], { type })) : content;
    link.download = name;
    link.click();
    if (type) setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  const csv = (plot) => {
    const cell = (value) => {
      const text = value === null ? "" : String(value);
      return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    const head = ({ name, unit }, otherwise) => (name || otherwise) + (unit.name ? ` (${unit.name})` : "");
    const spread = plot.series.some(({ ends }) => ends.length);
    const ended = (ends, at) => (spread ? (ends[at] ?? [null, null, null]) : []);
    const rows = plot.series.flatMap(({ name, mark, points, ends }) => points.map(([x, y], at) => [name, mark, x, y, ...ended(ends, at)]));
    const all = [["series", "mark", head(plot.x, "x"), head(plot.y, "y"), ...(spread ? ["low", "high", "ends"] : [])], ...rows];
    return all.map((row) => row.map(cell).join(",") + "\r\n").join("");
  };
  const picture = (plot, theme, selected, renderer) => {
    const width = 1000;
    const names = [...new Set(plot.series.map(({ label }) => label))];
    const rows = Math.ceil(names.reduce((sum, name) => sum + textWidth(name) + 60, 0) / (width - 60));
    const top = 52 + 24 * rows;
    const height = 460 + top;
    const full = option(plot, theme, width);
    full.backgroundColor = theme.card;
    full.title = { text: plot.title, left: 20, top: 14, textStyle: { color: theme.ink, fontFamily: FONT, fontSize: 17, width: width - 40, overflow: "truncate" } };
    full.legend = { show: true, data: names, selected, left: 16, top: 46, itemWidth: 30, textStyle: { color: theme.ink, fontFamily: FONT } };
    full.grid = { ...full.grid, left: 20, right: 30, bottom: 20, top: top + 8 };
    delete full.toolbox;
    const place = document.createElement("div");
    const chart = renderer === "svg"
      ? echarts.init(null, null, { renderer, ssr: true, width, height })
      : echarts.init(place, null, { renderer, width, height, devicePixelRatio: 2 });
    chart.setOption(full);
    const drawn = renderer === "svg" ? chart.renderToSVGString() : chart.getDataURL({ type: "png", pixelRatio: 2, backgroundColor: theme.card });
    chart.dispose();
    return drawn;
  };

  // ---- The plots of the page.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let wanted = "auto";
  let printing = false;
  const theme = () => (!printing && (wanted === "dark" || (wanted === "auto" && dark.matches)) ? DARK : LIGHT);
  const charts = [];
  const drawn = new Set();

  class Figure {
    constructor(place) {
      this.plot = PLOTS[Number(place.dataset.plot)];
      this.place = place;
      this.figure = place.closest("figure");
      this.selected = {};
      const points = this.plot.series.reduce((sum, series) => sum + series.drawn.length, 0);
      this.chart = echarts.init(place, null, { renderer: points > MANY ? "canvas" : "svg" });
      this.chart.on("finished", () => this.finished());
      this.chart.on("datazoom", () => this.zoomed());
      this.chart.getZr().on("dblclick", () => this.draw());
      this.button("reset")?.addEventListener("click", () => this.draw());
      this.button("csv").addEventListener("click", () => save(`${slug(this.plot.title)}.csv`, csv(this.plot), "text/csv"));
      this.button("png").addEventListener("click", () => save(`${slug(this.plot.title)}.png`, picture(this.plot, theme(), this.selected, "canvas")));
      this.button("svg").addEventListener("click", () => save(`${slug(this.plot.title)}.svg`, picture(this.plot, theme(), this.selected, "svg"), "image/svg+xml"));
      this.draw();
      this.width = place.clientWidth;
      new ResizeObserver(() => this.resized()).observe(place);
    }
    button(what) {
      return this.figure.querySelector(`[data-do="${what}"]`);
    }
    draw() {
      const full = option(this.plot, theme(), this.place.clientWidth);
      full.legend.selected = this.selected;
      this.chart.setOption(full, { notMerge: true });
      this.button("reset").hidden = true;
      this.legend();
      if (!matchMedia("(pointer: coarse)").matches) {
        this.chart.dispatchAction({ type: "takeGlobalCursor", key: "dataZoomSelect", dataZoomSelectActive: true });
      }
    }
    legend() {
      const buttons = this.plot.series.map((series) => {
        const button = document.createElement("button");
        button.type = "button";
        button.setAttribute("aria-pressed", String(this.selected[series.label] !== false));
        button.append(swatch(this.plot.kind, series, theme()), series.label);
        button.addEventListener("click", () => {
          this.selected[series.label] = this.selected[series.label] === false;
          this.chart.setOption({ legend: { selected: this.selected } });
          button.setAttribute("aria-pressed", String(this.selected[series.label]));
        });
        button.addEventListener("mouseenter", () => this.chart.dispatchAction({ type: "highlight", seriesName: series.label }));
        button.addEventListener("mouseleave", () => this.chart.dispatchAction({ type: "downplay", seriesName: series.label }));
        return button;
      });
      this.figure.querySelector(".legend").replaceChildren(...buttons);
    }
    zoomed() {
      this.button("reset").hidden = false;
      // Within a part of a logarithmic axis other ticks are better than the whole one's.
      const free = { axisLabel: { customValues: null }, axisTick: { customValues: null } };
      const change = {};
      if (this.plot.x.log_base && !this.plot.categories) change.xAxis = free;
      if (this.plot.y.log_base) change.yAxis = free;
      if (Object.keys(change).length) this.chart.setOption(change);
    }
    resized() {
      const width = this.place.clientWidth;
      if (!width || printing) return;
      this.chart.resize();
      if (width !== this.width && this.plot.categories) this.draw();
      this.width = width;
    }
    finished() {
      if (this.chart.getZr().storage.getDisplayList().length > 0) drawn.add(this);
      ROOT.dataset.plotsDrawn = drawn.size;
    }
    paper(on) {
      this.chart.resize(on ? { width: 680, height: 300 } : { width: "auto", height: "auto" });
      this.draw();
      this.chart.getZr().flush();
    }
  }

  const kinds = ["line", "bar"].filter((kind) => PLOTS.some((plot) => (plot.kind === "bar") === (kind === "bar")));
  const swatches = () => {
    for (const place of document.querySelectorAll(".swatch")) {
      const series = { mark: place.dataset.mark, slot: 0 };
      place.replaceChildren(...kinds.map((kind) => swatch(kind, series, theme())));
    }
  };
  const redraw = () => {
    swatches();
    charts.forEach((figure) => figure.draw());
  };
  const choose = (value) => {
    wanted = value;
    if (value === "auto") delete ROOT.dataset.theme;
    else ROOT.dataset.theme = value;
    redraw();
  };
  const print = (on) => {
    if (printing === on) return;
    printing = on;
    swatches();
    charts.forEach((figure) => figure.paper(on));
  };

  for (const radio of document.querySelectorAll('[name="theme"]')) {
    radio.addEventListener("change", () => choose(radio.value));
  }
  dark.addEventListener("change", redraw);
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
  for (const button of document.querySelectorAll('[data-do="copy"]')) {
    button.addEventListener("click", async () => {
      const code = button.closest(".command").querySelector("code");
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = WORDS.copied;
      } catch {
        getSelection().selectAllChildren(code);
      }
    });
  }

  // `#dark` and `#light` choose the colours from the start.
  const start = location.hash.slice(1);
  if (start === "dark" || start === "light") {
    document.querySelector(`[name="theme"][value="${start}"]`).checked = true;
    wanted = start;
    ROOT.dataset.theme = start;
  }
  swatches();
  const places = document.querySelectorAll(".chart");
  ROOT.dataset.plots = places.length;
  ROOT.dataset.plotsDrawn = 0;
  for (const place of places) charts.push(new Figure(place));
})();
