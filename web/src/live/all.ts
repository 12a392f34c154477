// The live view of all loaded models: one row each.
import { app } from "../app";
import { el } from "../dom";
import { bytes, count, History, seconds, type SnapshotJson } from "./history";

const GONE = 3000; // ms without an event after which a model is no longer shown

interface Row {
  history: History;
  seen: number; // performance.now() of the last event
}

const heads = ["Model", "Running", "Waiting", "Generated tokens/s", "Prompt tokens/s", "Step time", "KV cache used", "Memory"];

export class AllModels {
  private readonly rows = new Map<string, Row>();
  private readonly body = el("tbody");
  private readonly state = el("p", { class: "feed-state", role: "status" }, "Connecting …");

  constructor(into: HTMLElement, otherModels: HTMLElement) {
    into.replaceChildren(el("div", { class: "live-inside" },
      el("header", { class: "live-head" }, el("h1", {}, "The engines"), this.state, otherModels),
      el("section", { class: "card card-all", "aria-label": "Loaded models" },
        el("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Loaded models" },
          el("table", {}, el("thead", {}, el("tr", {}, ...heads.map((name) => el("th", { scope: "col" }, name)))), this.body)))));
  }

  end(): void {
    document.body.classList.remove("engine-busy");
  }

  say(text: string): void {
    if (this.state.textContent !== text) this.state.textContent = text;
  }

  take(event: string, data: string): void {
    const json = JSON.parse(data) as { model: string };
    const row = this.rows.get(json.model) ?? { history: new History(), seen: 0 };
    this.rows.set(json.model, row);
    row.seen = performance.now();
    if (event !== "snapshot") return;
    row.history.add(json as unknown as SnapshotJson);
    this.draw();
  }

  private draw(): void {
    for (const [name, row] of this.rows) if (performance.now() - row.seen > GONE) this.rows.delete(name);
    const focused = (document.activeElement as HTMLElement | null)?.dataset.model;
    this.body.replaceChildren(...[...this.rows].sort(([a], [b]) => a.localeCompare(b)).map(([name, row]) => this.row(name, row)));
    if (focused) this.body.querySelector<HTMLElement>(`[data-model="${CSS.escape(focused)}"]`)?.focus();
    const running = [...this.rows.values()].reduce((sum, row) => sum + (row.history.snapshot?.running ?? 0), 0);
    this.say(`${this.rows.size} of ${app.models.length} models loaded, ${running} ${running === 1 ? "stream" : "streams"} running`);
    document.body.classList.toggle("engine-busy", running > 0);
  }

  private row(name: string, { history }: Row): HTMLElement {
    const { snapshot } = history, rates = history.rates();
    const pool = snapshot?.blocks;
    const memory = snapshot?.memory.reduce((sum, use) => sum + use.bytes, 0) ?? 0;
    const open = el("button", { type: "button", class: "quiet", dir: "auto", "data-model": name, title: `Show ${name}`, onclick: () => {
      app.settings.model = name;
      app.saveSettings();
      document.dispatchEvent(new Event("modelchange"));
    } }, name);
    const cells = [String(snapshot?.running ?? 0), String(snapshot?.waiting ?? 0), count(rates.decode), count(rates.prefill), rates.stepSeconds > 0 ? seconds(rates.stepSeconds) : "–",
      pool && pool.total > 0 ? `${(((pool.total - pool.free) / pool.total) * 100).toFixed(0)} %` : "–", bytes(memory)];
    return el("tr", {}, el("th", { scope: "row" }, open), ...cells.map((cell) => el("td", {}, cell)));
  }
}
