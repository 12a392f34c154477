// The live view of all loaded models: one row each.
import { app } from "../app";
import { arrange, el, setText } from "../dom";
import { bytes, count, History, seconds, type SnapshotJson } from "./history";

const GONE = 3000; // ms without an event after which a model is no longer shown
const REDRAW = 1000; // ms

interface Row {
  history: History;
  seen: number; // performance.now() of the last event
  root: HTMLElement;
  cells: HTMLElement[];
}

const heads = ["Model", "Running", "Waiting", "Generated tokens/s", "Prompt tokens/s", "Step time", "KV cache used", "Memory"];

export class AllModels {
  private readonly rows = new Map<string, Row>();
  private readonly body = el("tbody");
  private readonly state = el("p", { class: "feed-state", role: "status" }, "Connecting …");

  private readonly timer = window.setInterval(() => this.draw(), REDRAW); // models leave without an event
  private connected = false;

  constructor(into: HTMLElement, private readonly otherModels: HTMLElement) {
    into.replaceChildren(el("div", { class: "live-inside" },
      el("header", { class: "live-head" }, el("h1", {}, "The engines"), this.state, otherModels),
      el("section", { class: "card card-all", "aria-label": "Loaded models" },
        el("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Loaded models" },
          el("table", {}, el("thead", {}, el("tr", {}, ...heads.map((name) => el("th", { scope: "col" }, name)))), this.body)))));
  }

  end(): void {
    clearInterval(this.timer);
    document.body.classList.remove("engine-busy");
  }

  opened(): void {
    this.connected = true;
  }

  // Shows why the feed is not connected.
  say(text: string): void {
    this.connected = false;
    setText(this.state, text);
  }

  take(event: string, data: string): void {
    const json = JSON.parse(data) as { model: string; loaded?: boolean };
    if (json.loaded === false) {
      this.rows.delete(json.model);
      return this.draw();
    }
    const row = this.rows.get(json.model) ?? this.newRow(json.model);
    row.seen = performance.now();
    if (event !== "snapshot") return;
    row.history.add(json as unknown as SnapshotJson);
    this.draw();
  }

  private draw(): void {
    for (const [name, row] of this.rows) if (performance.now() - row.seen > GONE) this.rows.delete(name);
    const sorted = [...this.rows].sort(([a], [b]) => a.localeCompare(b)).map(([, row]) => row);
    const focused = this.body.contains(document.activeElement);
    for (const row of sorted) this.fill(row);
    arrange(this.body, sorted.map((row) => row.root));
    if (focused && !this.body.contains(document.activeElement)) this.otherModels.focus();
    const running = sorted.reduce((sum, row) => sum + (row.history.snapshot?.running ?? 0), 0);
    document.body.classList.toggle("engine-busy", running > 0);
    if (!this.connected) return;
    setText(this.state, sorted.length === 0 ? "No model is loaded." : `${sorted.length} of ${app.models.length} models loaded, ${running} ${running === 1 ? "stream" : "streams"} running`);
  }

  private newRow(name: string): Row {
    const open = el("button", { type: "button", class: "quiet", dir: "auto", title: `Show ${name}`, onclick: () => app.chooseModel(name) }, name);
    const cells = heads.slice(1).map(() => el("td"));
    const row = { history: new History(), seen: 0, root: el("tr", {}, el("th", { scope: "row" }, open), ...cells), cells };
    this.rows.set(name, row);
    return row;
  }

  private fill({ history, cells }: Row): void {
    const { snapshot } = history, rates = history.rates();
    const pool = snapshot?.blocks;
    const memory = snapshot?.memory.reduce((sum, use) => sum + use.bytes, 0) ?? 0;
    const texts = [String(snapshot?.running ?? 0), String(snapshot?.waiting ?? 0), count(rates.decode), count(rates.prefill), rates.stepSeconds > 0 ? seconds(rates.stepSeconds) : "–",
      pool && pool.total > 0 ? `${(((pool.total - pool.free) / pool.total) * 100).toFixed(0)} %` : "–", bytes(memory)];
    texts.forEach((text, index) => setText(cells[index]!, text));
  }
}
