// A result of `millrace compare` as a plot and a table.
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { download, el, icon } from "../dom";
import { palette } from "../live/plot";
import { reason } from "../text";
import { type Axis, axisTitles, type Dot, dots, figureTitle, nearest, readResult, type Result, shown, withInterval } from "./result";

const HEIGHT = 360;
const NOTHING = "Run a comparison, or open a file that `millrace compare --json` has written. The file is read in the browser and sent nowhere.";

export class ResultPlot {
  readonly root = el("section", { class: "compare-result", "aria-label": "A result of millrace compare" });
  private readonly figure = el("select", { "aria-label": "Figure" });
  private readonly axis = el("select", { "aria-label": "Against" }, el("option", { value: "speed" }, "decode speed"), el("option", { value: "memory" }, "memory"));
  private readonly choices = el("p", { class: "compare-choices", hidden: true });
  private readonly chart = el("div", { class: "compare-chart" });
  private readonly about = el("p", { class: "compare-about", role: "status" });
  private readonly table = el("div", { class: "table compare-table", tabindex: "0", role: "region", "aria-label": "Table of the result", hidden: true });
  private plot: uPlot | null = null;
  private result: Result | null = null;
  private source = ""; // the result as JSON

  constructor() {
    const file = el("input", { type: "file", accept: ".json,application/json", hidden: true, tabindex: "-1", "aria-hidden": "true", onchange: () => {
      void this.open(file.files?.[0]);
      file.value = "";
    } });
    for (const choice of [this.figure, this.axis]) choice.addEventListener("change", () => this.draw());
    this.choices.append(this.figure, " against ", this.axis,
      el("button", { type: "button", class: "quiet", onclick: () => download("comparison.json", this.source) }, icon("download"), "Save as JSON"));
    this.root.append(el("header", { class: "compare-head" }, el("h2", {}, "Result"),
      el("button", { type: "button", class: "button", onclick: () => file.click() }, icon("upload"), "Open a result file"), file),
      this.choices, this.chart, this.about, this.table);
    this.about.textContent = NOTHING;
  }

  show(result: Result, source: string): void {
    this.result = result;
    this.source = source;
    this.choices.hidden = this.table.hidden = false;
    this.figure.replaceChildren(...result.figures.map((name) => el("option", { value: name }, name)));
    this.fillTable(result);
    this.draw();
  }

  end(): void {
    this.plot?.destroy();
    this.plot = null;
    this.chart.replaceChildren();
  }

  draw(): void {
    this.end();
    const { result } = this;
    if (!result || this.chart.clientWidth === 0) return;
    const all = dots(result, this.figure.value, this.axis.value as Axis), colors = palette();
    if (all.length === 0) {
      this.chart.append(el("p", { class: "compare-about" }, "The plot needs a suite and rounds of timing, and this result lacks one of them."));
      this.say(null);
      return;
    }
    const label = { labelSize: 20, labelFont: `600 ${colors.font}` };
    const axis = { stroke: colors.faint, font: colors.font, grid: { stroke: colors.line, width: 1 }, ticks: { show: false } };
    const against = this.axis.value as Axis;
    const moreIsBetter = result.configs.some((config) => config.figures.get(this.figure.value)?.moreIsBetter);
    this.plot = new uPlot({
      width: this.chart.clientWidth, height: HEIGHT, legend: { show: false }, padding: [16, 24, 4, 4],
      cursor: { drag: { x: false, y: false }, points: { show: false } },
      scales: { x: { time: false, range: () => wider(Math.min(...all.map((dot) => dot.left)), Math.max(...all.map((dot) => dot.right))) }, y: { dir: moreIsBetter ? 1 : -1, range: () => wider(Math.min(...all.map((dot) => dot.low)), Math.max(...all.map((dot) => dot.high))) } },
      axes: [{ ...axis, ...label, size: 28, label: axisTitles[against] }, { ...axis, ...label, size: 54, label: figureTitle(this.figure.value, moreIsBetter) }],
      series: [{}, { paths: () => null, points: { show: false } }],
      hooks: {
        draw: [(u) => this.paint(u, all)],
        setCursor: [(u) => this.say(nearest(all, (dot) => [u.valToPos(dot.x, "x"), u.valToPos(dot.y, "y")], u.cursor.left ?? -99, u.cursor.top ?? -99))],
      },
    }, [all.map((dot) => dot.x), all.map((dot) => dot.y)], this.chart);
    this.say(null);
  }

  private async open(file: File | undefined): Promise<void> {
    if (!file) return;
    try {
      const source = await file.text();
      this.show(readResult(source), source);
    } catch (error) {
      this.result = null;
      this.end();
      this.choices.hidden = this.table.hidden = true;
      this.about.textContent = reason(error);
    }
  }

  // Two whiskers and a dot each, full on the Pareto front, with the configuration's number.
  private paint(u: uPlot, all: Dot[]): void {
    const { ctx } = u, colors = palette(), ratio = devicePixelRatio || 1;
    ctx.save();
    ctx.font = `${12 * ratio}px sans-serif`;
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    for (const dot of all) {
      const x = u.valToPos(dot.x, "x", true), y = u.valToPos(dot.y, "y", true);
      ctx.strokeStyle = ctx.fillStyle = dot.front ? colors.decode : colors.faint;
      ctx.lineWidth = 1.5 * ratio;
      ctx.beginPath();
      ctx.moveTo(x, u.valToPos(dot.low, "y", true));
      ctx.lineTo(x, u.valToPos(dot.high, "y", true));
      ctx.moveTo(u.valToPos(dot.left, "x", true), y);
      ctx.lineTo(u.valToPos(dot.right, "x", true), y);
      ctx.stroke();
      ctx.beginPath();
      ctx.arc(x, y, 5 * ratio, 0, 2 * Math.PI);
      if (!dot.front) ctx.fillStyle = colors.surface;
      ctx.fill();
      ctx.stroke();
      ctx.fillStyle = colors.ink;
      ctx.fillText(String(dot.config + 1), x + 8 * ratio, y - 6 * ratio);
    }
    ctx.restore();
  }

  private say(dot: Dot | null): void {
    const { result } = this;
    if (!result) return;
    const at = dot && result.configs[dot.config];
    this.about.textContent = at && dot
      ? `${dot.config + 1}: ${at.name}: ${this.figure.value} ${shown(dot.y)} (${shown(dot.low)} to ${shown(dot.high)}), ${withInterval({ value: dot.x, low: dot.left, high: dot.right })} ${this.axis.value === "speed" ? "tokens/s" : "MB"}`
      : `${result.model}. ${result.machine}. Full dots, and shaded rows: no other configuration is better in quality, speed and memory at once. Whiskers and brackets are 95 % intervals.`;
  }

  private fillTable(result: Result): void {
    const head = el("tr", {}, ...["", "Configuration", ...result.figures, "Decode, tokens/s", "Memory, MB"].map((name) => el("th", { scope: "col" }, name)));
    const rows = result.configs.map((config, i) => el("tr", { class: config.front ? "front" : undefined },
      ...[String(i + 1), config.name, ...result.figures.map((name) => {
        const figure = config.figures.get(name);
        return figure ? withInterval(figure) + (figure.unseen ? " unseen" : "") : "";
      }), config.decode ? withInterval(config.decode) : "", config.megabytes === null ? "" : shown(config.megabytes)].map((cell) => el("td", {}, cell))));
    this.table.replaceChildren(el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows)));
  }
}

function wider(min: number, max: number): [number, number] {
  const margin = max > min ? (max - min) * 0.08 : Math.max(Math.abs(max) * 0.05, 1e-9);
  return [min - margin, max + margin];
}
