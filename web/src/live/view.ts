// The live view: charts of the engine, from its feed at /live. The feed is open only while the view is shown.
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

import { app, modelName } from "../app";
import { el } from "../dom";
import { AllModels } from "./all";
import { follow } from "./feed";
import { bytes, count, History, quantile, seconds, type HelloJson, type SnapshotJson } from "./history";
import { drawBlocks, drawHistogram, drawLanes, drawSteps, expand, gridOf, ROW, type Cell, type Grid } from "./pictures";
import { palette, Plot } from "./plot";
import { techniques } from "./techniques";

import "./live.css";

const PARTS = 60; // of the window, in the chart of tokens per second

function figure(label: string, key: string): { root: HTMLElement; set(value: string): void } {
  const value = el("dd", { "data-figure": key }, "–");
  return { root: el("div", { class: "figure" }, el("dt", {}, label), value), set: (text) => (value.textContent = text) };
}

function card(title: string, name: string, ...inside: (Node | string)[]): HTMLElement {
  return el("section", { class: `card card-${name}`, "aria-labelledby": `card-${name}` }, el("h2", { id: `card-${name}` }, title), ...inside);
}

const key = (name: string, text: string): HTMLElement => el("span", { class: `key key-${name}` }, text);

class LiveView {
  private readonly history = new History();
  private hello: HelloJson | null = null;
  private cells: Cell[] = [];
  private grid: Grid = { side: 1, columns: 1, rows: 1 };
  private readonly figures = {
    decode: figure("generated tokens/s", "decode"), prefill: figure("prompt tokens/s", "prefill"), running: figure("running", "running"), waiting: figure("waiting", "waiting"),
    step: figure("step time", "step"), kv: figure("KV cache used", "kv"), hits: figure("prompt tokens cached", "hits"),
  };
  private readonly lanes = new Plot("Streams over the last minute", ROW * 4 + 18);
  private readonly steps = new Plot("Contents of the last steps", 190);
  private readonly blocks = new Plot("Blocks of the KV cache", 200);
  private readonly ttft = new Plot("Time to the first token", 92);
  private readonly itl = new Plot("Time between tokens", 92);
  private readonly ttftText = el("p", { class: "quantiles" });
  private readonly itlText = el("p", { class: "quantiles" });
  private readonly blocksText = el("p", { class: "under", "data-blocks": "" });
  private readonly blockAt = el("p", { class: "under", "aria-live": "off" });
  private readonly state = el("p", { class: "feed-state" }, "Connecting …");
  private readonly rateChart = el("div", { class: "rates" });
  private readonly techniqueRows = el("tbody");
  private readonly memory = el("div", { class: "memory" });
  private readonly hint = el("p", { class: "lanes-hint" }, "Nothing is running. Send a message in the chat, and its stream appears here.");
  private chart: uPlot | null = null;
  private readonly resized: ResizeObserver;

  constructor(into: HTMLElement, otherModels: HTMLElement) {
    into.replaceChildren(el("div", { class: "live-inside" },
      el("header", { class: "live-head" }, el("h1", {}, "The engine"), this.state, otherModels),
      el("dl", { class: "figures" }, ...Object.values(this.figures).map((one) => one.root)),
      card("Streams", "lanes", el("div", { class: "keys" }, key("wait", "waiting"), key("pale", "prompt"), key("full", "generating"), el("span", { class: "key" }, "#stream  prompt + generated tokens, drafted tokens accepted/verified")), el("div", { class: "plot" }, this.lanes.canvas, this.hint)),
      card("Steps", "steps", el("div", { class: "keys" }, key("decode", "decode tokens"), key("prefill", "prefill tokens"), key("time", "step time")), el("div", { class: "plot" }, this.steps.canvas)),
      card("Tokens per second", "rates", el("div", { class: "keys" }, key("decode", "generated"), key("prefill", "prompt")), this.rateChart),
      card("KV cache", "blocks", el("div", { class: "keys" }, key("free", "free"), key("cached", "prefix cache"), key("full", "a stream's"), key("shared", "shared by several")),
        el("div", { class: "plot" }, this.blocks.canvas), this.blocksText, this.blockAt),
      card("Latency", "latency", el("div", { class: "pair" },
        el("div", {}, el("h3", {}, "First token"), el("div", { class: "plot" }, this.ttft.canvas), this.ttftText),
        el("div", {}, el("h3", {}, "Between tokens"), el("div", { class: "plot" }, this.itl.canvas), this.itlText)),
        el("p", { class: "under" }, "Measured in the engine since this view was opened.")),
      card("Techniques", "techniques", el("table", {}, el("thead", { class: "only-heard" }, el("tr", {}, el("th", {}, "Technique"), el("th", {}, "Setting"), el("th", {}, "Effect"))), this.techniqueRows)),
      card("Memory", "memory", this.memory)));
    this.blocks.canvas.addEventListener("pointermove", (event) => this.showBlock(event.offsetX, event.offsetY));
    this.blocks.canvas.addEventListener("pointerleave", () => (this.blockAt.textContent = ""));
    this.resized = new ResizeObserver(() => this.draw());
    this.resized.observe(into);
    document.addEventListener("themechange", this.redraw);
  }

  private readonly redraw = (): void => {
    this.chart?.destroy();
    this.chart = null;
    this.draw();
  };

  end(): void {
    this.resized.disconnect();
    document.removeEventListener("themechange", this.redraw);
    this.chart?.destroy();
    document.body.classList.remove("engine-busy");
  }

  say(text: string): void {
    if (this.state.textContent !== text) this.state.textContent = text;
  }

  private sayHello(): void {
    if (!this.hello) return;
    const { model, context, options } = this.hello;
    this.say(`${model} · context ${count(context)} · up to ${options.max_streams} streams, ${options.batch_tokens} tokens per step`);
  }

  take(event: string, data: string): void {
    if (event === "hello") {
      this.hello = JSON.parse(data) as HelloJson;
      if (this.hello.loaded !== false) this.sayHello();
    }
    if (event === "busy") {
      const busy = JSON.parse(data) as { step_seconds: number; stopped: boolean; loaded?: boolean };
      this.say(busy.loaded === false ? `${this.hello?.model ?? "The model"} is not loaded. Its first message loads it.` : busy.stopped ? "The engine has stopped." : `Step running for ${seconds(busy.step_seconds)} …`);
    }
    if (event !== "snapshot") return;
    this.sayHello();
    this.history.add(JSON.parse(data) as SnapshotJson);
    this.draw();
  }

  private draw(): void {
    const { history } = this;
    const snapshot = history.snapshot;
    if (!snapshot) return;
    const colors = palette();
    const rates = history.rates();
    const { totals, blocks: pool } = snapshot;
    const prompt = (totals.prefix_query_tokens ?? 0) > 0 ? (totals.prefix_hit_tokens ?? 0) / totals.prefix_query_tokens! : NaN;
    const held = pool.total > 0 ? (pool.total - pool.free) / pool.total : 0;
    this.figures.decode.set(count(rates.decode));
    this.figures.prefill.set(count(rates.prefill));
    this.figures.running.set(String(snapshot.running));
    this.figures.waiting.set(String(snapshot.waiting));
    this.figures.step.set(rates.stepSeconds > 0 ? seconds(rates.stepSeconds) : "–");
    this.figures.kv.set(`${(held * 100).toFixed(held < 0.1 ? 1 : 0)} %`);
    this.figures.hits.set(Number.isNaN(prompt) ? "–" : `${(prompt * 100).toFixed(0)} %`);
    document.body.classList.toggle("engine-busy", snapshot.running > 0);

    const rows = Math.max(4, ...history.lanes.map((lane) => lane.row + 1));
    this.hint.hidden = history.lanes.length > 0;
    this.lanes.draw((g, w, h) => drawLanes(g, w, h, history, colors), Math.min(rows, 24) * ROW + 20);
    this.lanes.say(`Streams: ${snapshot.running} running, ${snapshot.waiting} waiting`);
    this.steps.draw((g, w, h) => drawSteps(g, w, h, history.steps, colors));
    const last = history.steps.at(-1);
    this.steps.say(last ? `Steps: the last one has ${last[3]} prefill and ${last[4]} decode tokens` : "No step yet");
    this.drawPool(snapshot, colors);
    this.ttft.draw((g, w, h) => drawHistogram(g, w, h, history.ttft, colors.prefill, colors));
    this.itl.draw((g, w, h) => drawHistogram(g, w, h, history.itl, colors.decode, colors));
    this.ttftText.textContent = this.quantiles(history.ttft);
    this.itlText.textContent = this.quantiles(history.itl);
    this.drawRates(colors.decode, colors.prefill, colors.faint, colors.line, colors.font);
    if (this.hello) {
      this.techniqueRows.replaceChildren(...techniques(this.hello, snapshot).map((one) =>
        el("tr", { class: one.on ? undefined : "off" }, el("th", { scope: "row" }, one.name), el("td", {}, one.setting), el("td", {}, one.saves))));
    }
    this.drawMemory(snapshot);
  }

  private quantiles(samples: number[]): string {
    if (samples.length === 0) return "none yet";
    return `p50 ${seconds(quantile(samples, 0.5))} · p95 ${seconds(quantile(samples, 0.95))} · p99 ${seconds(quantile(samples, 0.99))}`;
  }

  private drawPool(snapshot: SnapshotJson, colors: ReturnType<typeof palette>): void {
    const { blocks: pool } = snapshot;
    this.cells = expand(pool.cells);
    const width = this.blocks.canvas.parentElement?.clientWidth ?? 300;
    this.grid = gridOf(this.cells.length, width, 260);
    const hues = new Map(this.history.lanes.map((lane) => [lane.id, colors.hues[lane.hue]]));
    this.blocks.draw((g) => drawBlocks(g, this.cells, this.grid, (owner) => hues.get(snapshot.streams[owner]?.id ?? ""), colors), this.grid.rows * this.grid.side);
    const shared = this.cells.filter((cell) => cell.streams > 1).length;
    const text = `${count(pool.total)} blocks of ${pool.tokens} tokens: ${count(pool.total - pool.free)} held, ${count(pool.cached)} in the prefix cache, ${shared} shared` +
      (pool.in_cell > 1 ? `. A cell is ${pool.in_cell} blocks.` : "");
    this.blocksText.textContent = text;
    this.blocks.say(`KV cache: ${text}`);
  }

  private showBlock(x: number, y: number): void {
    const column = Math.floor(x / this.grid.side), index = Math.floor(y / this.grid.side) * this.grid.columns + column;
    const cell = column < this.grid.columns ? this.cells[index] : undefined;
    if (!cell) return void (this.blockAt.textContent = "");
    const owner = this.history.snapshot?.streams[cell.owner];
    const holder = cell.streams === 0 ? (cell.cached ? "in the prefix cache" : "free") : owner ? `stream #${owner.id}` : "another stream";
    this.blockAt.textContent = `Block ${index * (this.history.snapshot?.blocks.in_cell ?? 1)}: ${holder}${cell.streams > 1 ? `, shared by ${cell.streams}` : ""}${cell.streams > 0 && cell.cached ? ", also in the prefix cache" : ""}`;
  }

  private drawRates(decode: string, prefill: string, faint: string, line: string, font: string): void {
    const span = this.history.span();
    const series = this.history.series(Math.min(PARTS, span * 3), span);
    const data: uPlot.AlignedData = [series.map((one) => one.time), series.map((one) => one.decode), series.map((one) => one.prefill)];
    const width = this.rateChart.clientWidth;
    if (width === 0) return;
    if (!this.chart) {
      const axis = { stroke: faint, font, grid: { stroke: line, width: 1 }, ticks: { show: false } };
      this.chart = new uPlot({
        width, height: 190, legend: { show: false }, cursor: { show: false }, padding: [8, 18, 0, 0],
        scales: { x: { time: false, range: () => [-this.history.span(), 0] }, y: { range: (_u, _min, max) => [0, Math.max(10, max * 1.1)] } },
        axes: [
          { ...axis, size: 26, values: (_u, ticks) => ticks.map((tick) => (tick === 0 ? "now" : `${-tick} s`)), grid: { show: false } },
          { ...axis, size: 42, values: (_u, ticks) => ticks.map(count) },
        ],
        series: [{}, { stroke: decode, width: 2, fill: `color-mix(in srgb, ${decode} 14%, transparent)`, points: { show: false } }, { stroke: prefill, width: 1.5, points: { show: false } }],
      }, data, this.rateChart);
      return;
    }
    if (this.chart.width !== width) this.chart.setSize({ width, height: 190 });
    this.chart.setData(data);
  }

  private drawMemory(snapshot: SnapshotJson): void {
    const all = snapshot.memory.filter((use) => use.bytes > 0).sort((a, b) => b.bytes - a.bytes);
    const sum = all.reduce((total, use) => total + use.bytes, 0);
    const rows = all.map((use) => {
      const bar = el("span", { class: "memory-bar" });
      bar.style.setProperty("--p", String(use.bytes / (all[0]?.bytes ?? 1)));
      return el("div", { class: "memory-row" }, el("span", {}, use.name), bar, el("span", {}, bytes(use.bytes)));
    });
    if (snapshot.store) rows.push(el("div", { class: "memory-row" }, el("span", {}, "KV store"), el("span", {}, `${count(snapshot.store.blocks)}${snapshot.store.capacity > 0 ? ` of ${count(snapshot.store.capacity)}` : ""} blocks`), el("span", {}, `${bytes(snapshot.store.read_bytes)} read`)));
    this.memory.replaceChildren(...rows, el("p", { class: "under" }, snapshot.memory_budget > 0 ? `${bytes(sum)} of a budget of ${bytes(snapshot.memory_budget)}` : `${bytes(sum)} in total`));
  }
}

// Shows the live view until the returned function is called: of the selected model, or a summary of all loaded ones.
export function watch(into: HTMLElement): () => void {
  let all = false;
  let stop = (): void => undefined;
  const button = el("button", { type: "button", class: "button live-all", "aria-pressed": "false", onclick: () => {
    all = !all;
    open();
    button.focus();
  } }, "All models");
  const open = (): void => {
    stop();
    button.hidden = app.models.length < 2;
    button.setAttribute("aria-pressed", String(all));
    const view = all ? new AllModels(into, button) : new LiveView(into, button);
    const end = follow(all ? "*" : modelName(), view);
    stop = () => {
      end();
      view.end();
    };
  };
  const changed = (): void => {
    const focused = into.contains(document.activeElement);
    all = false;
    open();
    if (focused) button.focus();
  };
  document.addEventListener("modelchange", changed);
  open();
  return () => {
    document.removeEventListener("modelchange", changed);
    stop();
  };
}
