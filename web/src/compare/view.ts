// Comparisons: a result of `millrace compare` as a plot, and one question answered by two configurations side by side.
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { ask } from "../api";
import { readChunk } from "../answer_stream";
import { app, modelName } from "../app";
import { el } from "../dom";
import { palette } from "../live/plot";
import { readEvents } from "../sse";
import { type Axis, choices, type Dot, dots, nearest, readResult, type Result, shown } from "./result";
import "./compare.css";

const HEIGHT = 340;

class ResultPlot {
  readonly root = el("section", { class: "compare-result", "aria-label": "A result of millrace compare" });
  private readonly figure = el("select", { "aria-label": "Figure" });
  private readonly axis = el("select", { "aria-label": "Against" }, el("option", { value: "speed" }, "decode, tokens/s"), el("option", { value: "memory" }, "weights and KV, MB"));
  private readonly chart = el("div", { class: "compare-chart" });
  private readonly about = el("p", { class: "compare-about", role: "status" }, "Open a file that `millrace compare --json` has written.");
  private readonly table = el("div", { class: "compare-table" });
  private plot: uPlot | null = null;
  private result: Result | null = null;

  constructor() {
    const file = el("input", { type: "file", accept: ".json,application/json", "aria-label": "Result file", onchange: () => void this.open(file.files?.[0]) });
    for (const choice of [this.figure, this.axis]) choice.addEventListener("change", () => this.draw());
    this.root.append(el("h2", {}, "A comparison"), el("p", { class: "compare-choices" }, file, this.figure, " against ", this.axis), this.chart, this.about, this.table);
    this.figure.hidden = true;
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
      this.chart.append(el("p", { class: "compare-about" }, "not measured"));
      this.say(null);
      return;
    }
    const axis = { stroke: colors.faint, font: colors.font, grid: { stroke: colors.line, width: 1 }, ticks: { show: false } };
    const moreIsBetter = result.configs.some((config) => config.figures.get(this.figure.value)?.moreIsBetter);
    this.plot = new uPlot({
      width: this.chart.clientWidth, height: HEIGHT, legend: { show: false }, padding: [16, 24, 0, 0],
      cursor: { drag: { x: false, y: false }, points: { show: false } },
      scales: { x: { time: false, range: (_u, min, max) => wider(min, max) }, y: { dir: moreIsBetter ? 1 : -1, range: () => wider(Math.min(...all.map((dot) => dot.low)), Math.max(...all.map((dot) => dot.high))) } },
      axes: [{ ...axis, size: 28 }, { ...axis, size: 54 }],
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
      this.result = readResult(await file.text());
    } catch (error) {
      this.result = null;
      this.end();
      this.table.replaceChildren();
      this.about.textContent = error instanceof Error ? error.message : String(error);
      return;
    }
    this.figure.hidden = false;
    this.figure.replaceChildren(...this.result.figures.map((name) => el("option", { value: name }, name)));
    this.fillTable(this.result);
    this.draw();
  }

  // A whisker and a dot each, full on the Pareto front, with the configuration's number.
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
      ? `${dot.config + 1}: ${at.name}: ${this.figure.value} ${shown(dot.y)} (${shown(dot.low)} to ${shown(dot.high)}), ${shown(dot.x)} ${this.axis.value === "speed" ? "tokens/s" : "MB"}`
      : `${result.model}. ${result.machine}. Full dots: no other configuration is better in quality, speed and memory at once.`;
  }

  private fillTable(result: Result): void {
    const head = el("tr", {}, ...["", "configuration", ...result.figures, "decode, tokens/s", "MB"].map((name) => el("th", { scope: "col" }, name)));
    const rows = result.configs.map((config, i) => el("tr", { class: config.front ? "front" : undefined },
      ...[String(i + 1), config.name, ...result.figures.map((name) => {
        const figure = config.figures.get(name);
        return figure ? shown(figure.value) : "";
      }), config.decode ? shown(config.decode.value) : "", config.megabytes === null ? "" : shown(config.megabytes)].map((cell) => el("td", {}, cell))));
    this.table.replaceChildren(el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows)));
  }
}

function wider(min: number, max: number): [number, number] {
  const margin = max > min ? (max - min) * 0.08 : Math.max(Math.abs(max) * 0.05, 1e-9);
  return [min - margin, max + margin];
}

// One of two answers to the same question.
class Column {
  readonly root: HTMLElement;
  private readonly spec: HTMLInputElement;
  private readonly model = el("select", { "aria-label": "Model" });
  private readonly answer = el("div", { class: "compare-answer", "aria-live": "polite" });
  private readonly facts = el("p", { class: "compare-facts" });

  constructor(label: string, spec: string) {
    this.spec = el("input", { type: "text", value: spec, "aria-label": `Techniques of the ${label} answer`, placeholder: "plain, or evictor=h2o:budget=64 + ..." });
    this.root = el("section", { class: "compare-column", "aria-label": `The ${label} answer` }, this.model, this.spec, this.answer, this.facts);
  }

  showModels(): void {
    this.model.replaceChildren(...app.models.map((one) => el("option", { value: one.id, selected: one.id === modelName() }, one.id)));
  }

  async ask(question: string, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    this.answer.textContent = this.facts.textContent = "";
    const use = choices(this.spec.value), began = performance.now();
    let first = 0, generated = 0;
    const body = { model: this.model.value || modelName(), messages: [{ role: "user", content: question }], temperature: 0, stream: true, stream_options: { include_usage: true }, ...(use.length > 0 ? { millrace: { use } } : {}) };
    try {
      const response = await ask("/v1/chat/completions", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });
      await readEvents(response, (event) => {
        if (event.data === "[DONE]") return false;
        const delta = readChunk(event.data);
        if (delta.content) {
          first ||= performance.now();
          this.answer.append(delta.content);
        }
        generated = delta.usage?.generated ?? generated;
        return undefined;
      });
      const seconds = (performance.now() - (first || began)) / 1000;
      this.facts.textContent = `first token after ${((first || performance.now()) - began).toFixed(0)} ms, ${generated} tokens` + (generated > 1 && seconds > 0 ? `, ${((generated - 1) / seconds).toFixed(1)} tokens/s` : "");
    } catch (error) {
      this.facts.textContent = signal.aborted ? "stopped" : error instanceof Error ? error.message : String(error);
    }
  }
}

// Shows the view until the returned function is called.
export function compare(into: HTMLElement): () => void {
  const plot = new ResultPlot(), columns = [new Column("left", ""), new Column("right", "evictor=streamingllm:window=60")];
  let over = new AbortController();
  const question = el("textarea", { rows: 2, "aria-label": "Question to both", placeholder: "One question to both configurations" });
  const send = el("button", { type: "submit" }, "Ask both");
  const form = el("form", { class: "compare-ask", onsubmit: (event: Event) => {
    event.preventDefault();
    over.abort();
    over = new AbortController();
    const { signal } = over, asked = question.value; // a later question has its own
    // One after the other, so that neither takes time from the other.
    void columns.reduce((before, column) => before.then(() => column.ask(asked, signal)), Promise.resolve());
  } }, question, send);
  for (const column of columns) column.showModels();
  into.replaceChildren(plot.root, el("section", { class: "compare-both", "aria-label": "Two answers" }, el("h2", {}, "Two answers"), form, el("div", { class: "compare-columns" }, ...columns.map((column) => column.root))));
  const redraw = (): void => plot.draw();
  window.addEventListener("resize", redraw);
  document.addEventListener("themechange", redraw);
  return () => {
    over.abort();
    window.removeEventListener("resize", redraw);
    document.removeEventListener("themechange", redraw);
    plot.end();
  };
}
