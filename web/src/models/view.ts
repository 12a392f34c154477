// The models view: the models of the server, loaded or not, their size against its memory, and downloads from a hub.
import { ask, postJson } from "../api";
import { app, modelName } from "../app";
import { arrange, el, icon, iconButton, setText } from "../dom";
import { reason } from "../text";
import { amount, listModels, memoryOf, tooLarge, type Listed, type Memory, type ModelsJson, type RunningJson, type TagsJson } from "./list";
import { forget, onPullsChange, pull, pulls, type Pull } from "./pulls";

import "./models.css";

const REFRESH = 3000; // ms
const FROM_HUB = "By a short name, such as qwen3:0.6b (`millrace pull --list` lists them), or from Hugging Face by the name of the repository.";
const NO_STORE = "This server keeps no downloaded models. Start it as `millrace serve --store` to download models here.";

const json = async <T>(path: string, signal: AbortSignal): Promise<T> => (await (await ask(path, { signal })).json()) as T;
const post = (path: string, body: unknown, method = "POST"): Promise<Response> =>
  ask(path, { ...postJson(body), method });

const states: Record<string, string> = { loaded: "Loaded", loading: "Loading …", unloaded: "Not loaded" };

// The row of a model. `drawn`: the facts that it shows; it is replaced when they change.
interface ModelRow {
  root: HTMLElement;
  drawn: string;
}

// The row of a download. `over`: the state that it was created for; it is replaced when the download ends.
interface PullRow {
  root: HTMLElement;
  over: Pull["over"];
  bar: HTMLProgressElement | null;
  text: HTMLElement;
}

const focusIn = (node: HTMLElement | undefined, selector: string): boolean => {
  const found = node?.querySelector<HTMLElement>(selector);
  found?.focus();
  return found !== undefined && found !== null && found === document.activeElement;
};

class ModelsView {
  private readonly head = el("h1", { tabindex: "-1" }, "Models");
  private readonly memory = el("div", { class: "models-memory" });
  private readonly list = el("ul", { class: "models-list", "aria-label": "Models" });
  private readonly downloads = el("ul", { class: "models-pulls", "aria-label": "Downloads" });
  private readonly state = el("p", { class: "models-state", role: "status" }, "Asking the server …");
  private readonly field = el("input", { type: "text", id: "pull-name", placeholder: "qwen3:0.6b or OWNER/NAME:QUANT", autocomplete: "off", autocapitalize: "off", spellcheck: "false", required: true });
  private readonly start = el("button", { type: "submit", class: "button primary" }, icon("download"), "Download");
  private readonly about = el("p", { class: "hint", id: "pull-about" }, FROM_HUB);
  private readonly over = new AbortController();
  private readonly errors = new Map<string, string>(); // of the last action, by model
  private readonly working = new Set<string>();         // models with an action in progress
  private readonly rows = new Map<string, ModelRow>();   // by model
  private readonly pullRows = new Map<Pull, PullRow>();
  private models: Listed[] = [];
  private room: Memory | null = null;
  private asking = "";  // the model whose deletion waits for a confirmation
  private timer = 0;

  // `changed`: the list of models in the bar must be read again.
  constructor(into: HTMLElement, private readonly changed: () => Promise<void>) {
    const form = el("form", { class: "models-form", onsubmit: (event: Event) => {
      event.preventDefault();
      void this.download();
    } }, el("label", { class: "part-label", for: "pull-name" }, "Download a model"),
      el("div", { class: "models-row" }, this.field, this.start), this.about);
    this.field.setAttribute("aria-describedby", "pull-about");
    into.replaceChildren(el("div", { class: "models-inside" },
      el("header", { class: "models-head" }, this.head, this.state), this.memory, form, this.downloads, this.list));
    onPullsChange(() => this.drawPulls());
    this.drawPulls();
    void this.refresh();
  }

  end(): void {
    this.over.abort();
    clearTimeout(this.timer);
    onPullsChange(() => undefined);
  }

  private async refresh(): Promise<void> {
    clearTimeout(this.timer);
    const { signal } = this.over;
    try {
      const [models, tags, running] = await Promise.all([json<ModelsJson>("/models", signal), json<TagsJson>("/api/tags", signal), json<RunningJson>("/api/ps", signal)]);
      if (signal.aborted) return;
      this.models = listModels(models, tags, running);
      this.room = memoryOf(models);
      this.offerDownloads(models.store !== false);
      const loaded = this.models.filter((one) => one.state === "loaded").length;
      setText(this.state, `${this.models.length} ${this.models.length === 1 ? "model" : "models"}, ${loaded} loaded`);
      this.draw();
    } catch (error) {
      if (signal.aborted) return;
      setText(this.state, reason(error));
    }
    this.timer = window.setTimeout(() => void this.refresh(), REFRESH);
  }

  private offerDownloads(possible: boolean): void {
    this.field.disabled = this.start.disabled = !possible;
    setText(this.about, possible ? FROM_HUB : NO_STORE);
  }

  // Replaces only the rows that have changed. If one of them had the keyboard focus, the same button of the new row
  // receives it, or the model's name if the button is gone.
  private draw(): void {
    this.drawMemory();
    const focused = document.activeElement as HTMLElement | null;
    const action = focused?.dataset.action ?? "";
    const place = [...this.list.children].findIndex((row) => row.contains(focused));
    const owner = [...this.rows].find(([, row]) => row.root.contains(focused))?.[0];
    const old = new Map(this.rows);
    this.rows.clear();
    for (const model of this.models) {
      const drawn = this.signature(model), before = old.get(model.name);
      this.rows.set(model.name, before?.drawn === drawn ? before : { root: this.row(model), drawn });
    }
    arrange(this.list, [...this.rows.values()].map((row) => row.root));
    if (place < 0 || this.list.contains(document.activeElement)) return;
    const own = this.rows.get(owner ?? "")?.root;
    if (own) return void (focusIn(own, `[data-action="${CSS.escape(action)}"]`) || focusIn(own, "h2"));
    const next = this.list.children[Math.min(place, this.list.children.length - 1)] as HTMLElement | undefined;
    if (!focusIn(next, "h2")) this.head.focus();
  }

  // Everything that row() shows.
  private signature(model: Listed): string {
    const { name } = model;
    return JSON.stringify([{ ...model, expires: Math.round(model.expires / 60_000) }, tooLarge(model, this.room), this.room?.bytes, this.errors.get(name), this.working.has(name), this.asking === name, name === modelName()]);
  }

  private drawMemory(): void {
    const { room } = this;
    this.memory.hidden = !room || room.bytes === 0;
    if (!room || room.bytes === 0) return;
    const bar = el("span", { class: "models-bar" });
    bar.style.setProperty("--p", String(Math.min(1, room.used / room.bytes)));
    const free = room.available > 0 ? `, ${amount(room.available)} free` : "";
    this.memory.replaceChildren(el("span", {}, `The server uses ${amount(room.used)} of ${room.budget ? "a budget of " : ""}${amount(room.bytes)}${free}`), bar);
  }

  private row(model: Listed): HTMLElement {
    const large = tooLarge(model, this.room), error = this.errors.get(model.name) ?? model.error;
    const expires = model.expires > 0 ? `until ${new Date(model.expires).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })} unless used` : "";
    const bar = el("span", { class: "models-bar" });
    if (this.room && this.room.bytes > 0) bar.style.setProperty("--p", String(Math.min(1, model.bytes / this.room.bytes)));
    return el("li", { class: `models-item ${model.state}` },
      el("div", { class: "models-name" }, el("h2", { dir: "auto", tabindex: "-1" }, model.name), el("span", { class: "models-pill" }, states[model.state] ?? model.state)),
      el("p", { class: "models-facts" }, [...model.facts, expires].filter(Boolean).join(" · ")),
      model.bytes > 0 && el("p", { class: "models-size" }, el("span", {}, amount(model.bytes) + (large ? `: ${large}` : "")), bar),
      error !== "" && el("p", { class: "failure", role: "alert" }, error),
      this.actions(model));
  }

  private actions(model: Listed): HTMLElement {
    const { name } = model, busy = this.working.has(name) || model.state === "loading";
    // A busy button is not disabled: that would lose the keyboard focus.
    const button = (action: string, text: string, act: () => void, more: Record<string, unknown> = {}): HTMLElement =>
      el("button", { type: "button", class: "button", "data-action": `${action} ${name}`, "aria-label": `${text} ${name}`, "aria-disabled": busy ? "true" : undefined, onclick: () => busy || act(), ...more }, text);
    if (this.asking === name) {
      return el("div", { class: "models-actions", role: "group", "aria-label": `Delete ${name}?` }, el("span", {}, `Delete ${name} and its files?`),
        button("sure", "Delete", () => void this.act(name, () => post("/api/delete", { model: name }, "DELETE")), { class: "button bad" }),
        button("keep", "Keep", () => this.confirm("", `delete ${name}`)));
    }
    return el("div", { class: "models-actions" },
      model.state === "loaded"
        ? button("unload", "Unload", () => void this.act(name, () => post("/models/unload", { model: name })))
        : button("load", model.state === "loading" ? "Loading …" : "Load", () => void this.act(name, () => post("/models/load", { model: name }))),
      name === modelName()
        ? el("a", { class: "button", href: "#chat", "data-action": `chat ${name}` }, "Chat")
        : button("choose", "Chat with it", () => this.choose(name)),
      model.stored && button("delete", "Delete", () => this.confirm(name, `sure ${name}`)));
  }

  private confirm(name: string, focus: string): void {
    this.asking = name;
    this.draw();
    this.list.querySelector<HTMLElement>(`[data-action="${CSS.escape(focus)}"]`)?.focus();
  }

  private choose(name: string): void {
    app.chooseModel(name);
    location.hash = "#chat";
  }

  private async act(name: string, action: () => Promise<Response>): Promise<void> {
    this.asking = "";
    this.errors.delete(name);
    this.working.add(name);
    this.draw();
    try {
      await action();
    } catch (error) {
      this.errors.set(name, reason(error));
    }
    this.working.delete(name);
    await Promise.allSettled([this.refresh(), this.changed()]);
  }

  private async download(): Promise<void> {
    const name = this.field.value.trim();
    if (name === "" || pulls.some((one) => one.name === name && one.over === "")) return;
    this.field.value = "";
    if (await pull(name)) {
      app.say(`${name} is downloaded`);
      await Promise.allSettled([this.refresh(), this.changed()]);
    }
  }

  private drawPulls(): void {
    this.downloads.hidden = pulls.length === 0;
    const focused = document.activeElement;
    const place = [...this.downloads.children].findIndex((row) => row.contains(focused));
    const owner = [...this.pullRows].find(([, row]) => row.root.contains(focused))?.[0];
    const old = new Map(this.pullRows);
    this.pullRows.clear();
    for (const one of pulls) {
      const before = old.get(one), row = before?.over === one.over ? before : this.pullRow(one);
      const part = one.total > 0 ? one.completed / one.total : 0;
      if (row.bar && one.total > 0) row.bar.value = part;
      setText(row.text, one.over === "done" ? "Downloaded" : one.over !== "" || one.total === 0 ? one.status : `${amount(one.completed)} of ${amount(one.total)}, ${(part * 100).toFixed(0)} %`);
      this.pullRows.set(one, row);
    }
    arrange(this.downloads, [...this.pullRows.values()].map((row) => row.root));
    if (place < 0 || this.downloads.contains(document.activeElement)) return;
    const row = (owner && this.pullRows.get(owner)?.root) ?? (this.downloads.children[Math.min(place, pulls.length - 1)] as HTMLElement | undefined);
    if (!focusIn(row, "button")) this.field.focus();
  }

  private pullRow(one: Pull): PullRow {
    const failed = one.over === "failed";
    const bar = one.over === "" ? el("progress", { max: "1", "aria-label": `Download of ${one.name}` }) : null;
    const text = el("span", { class: failed ? "failure" : "hint", role: failed ? "alert" : undefined });
    const root = el("li", { class: `models-pull ${one.over}` },
      el("span", { class: "models-pull-name", dir: "auto" }, one.name), bar, text,
      one.over === ""
        ? el("button", { type: "button", class: "button", "aria-label": `Cancel the download of ${one.name}`, onclick: () => one.cancel() }, "Cancel")
        : iconButton("close", `Remove ${one.name} from the list`, () => forget(one)));
    return { root, over: one.over, bar, text };
  }
}

// Shows the view until the returned function is called.
export function manage(changed: () => Promise<void>, into: HTMLElement): () => void {
  const view = new ModelsView(into, changed);
  return () => view.end();
}
