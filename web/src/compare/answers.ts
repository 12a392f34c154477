// One question answered by two configurations side by side.
import { ask, postJson } from "../api";
import { readChunk } from "../answer_stream";
import { app, modelName } from "../app";
import { el } from "../dom";
import { readEvents } from "../sse";
import { reason } from "../text";
import { ConfigBuilder } from "./builder";
import type { Part, Registry } from "./spec";

// One of two answers to the same question.
class Column {
  readonly root: HTMLElement;
  private readonly builder: ConfigBuilder;
  private readonly model: HTMLSelectElement;
  private readonly answer = el("div", { class: "compare-answer", dir: "auto", "aria-live": "polite" });
  private readonly facts = el("p", { class: "compare-facts" });

  constructor(registry: Registry, label: string, parts: Part[]) {
    this.model = el("select", { "aria-label": `Model of the ${label.toLowerCase()} answer` });
    this.builder = new ConfigBuilder(registry, { title: `${label} answer`, families: registry.request_families, models: [] }, parts);
    this.root = el("section", { class: "compare-column", "aria-label": `${label} answer` }, this.model, this.builder.root, this.answer, this.facts);
    this.model.replaceChildren(...app.models.map((one) => el("option", { value: one.id, selected: one.id === modelName() }, one.id)));
  }

  async ask(question: string, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    this.answer.textContent = this.facts.textContent = "";
    const wrong = this.builder.wrong();
    if (wrong) return void (this.facts.textContent = wrong);
    const use = this.builder.uses(), began = performance.now();
    let first = 0, generated = 0;
    const body = { model: this.model.value || modelName(), messages: [{ role: "user", content: question }], temperature: 0, stream: true, stream_options: { include_usage: true }, ...(use.length > 0 ? { millrace: { use } } : {}) };
    try {
      const response = await ask("/v1/chat/completions", { ...postJson(body), signal });
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
      this.facts.textContent = signal.aborted ? "stopped" : reason(error);
    }
  }
}

export class TwoAnswers {
  readonly root: HTMLElement;
  private over = new AbortController();

  constructor(registry: Registry) {
    const columns = [new Column(registry, "Left", []), new Column(registry, "Right", [{ family: "evictor", name: "streamingllm", values: { window: "60" } }])];
    const question = el("textarea", { rows: 2, dir: "auto", "aria-label": "Question to both", placeholder: "One question to both configurations", required: true });
    const form = el("form", { class: "compare-ask", onsubmit: (event: Event) => {
      event.preventDefault();
      this.over.abort();
      this.over = new AbortController();
      const { signal } = this.over, asked = question.value; // a later question has its own
      // One after the other, so that neither takes time from the other.
      void columns.reduce((before, column) => before.then(() => column.ask(asked, signal)), Promise.resolve());
    } }, question, el("button", { type: "submit", class: "button primary" }, "Ask both"));
    this.root = el("section", { class: "compare-both", "aria-label": "Two answers" }, el("h2", {}, "Two answers"),
      el("p", { class: "hint" }, "The same question to both, greedily, one after the other. Only techniques that a single request can choose."),
      el("div", { class: "compare-columns" }, ...columns.map((column) => column.root)), form);
  }

  end(): void {
    this.over.abort();
  }
}
