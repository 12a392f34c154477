// Chooses what is compared and measured, runs the comparison on the server, and shows its progress.
import { app, modelName } from "../app";
import { el, icon } from "../dom";
import { reason } from "../text";
import { ConfigBuilder } from "./builder";
import { runComparison, type ComparisonBody, type Finished } from "./run";
import { overall, type Registry, type SuiteJson } from "./spec";

const MOST_CONFIGURATIONS = 15; // and the base
const MOST_TEXT = 4 << 20;      // characters
const DEFAULT_ARGUMENTS: Record<string, string> = { lab: "copy" };

// Summaries name the flags of the command line.
const plainSummary = (summary: string): string => summary.replaceAll("--text", "the text").replaceAll("--items", "items");

interface SuiteChoice {
  suite: SuiteJson;
  chosen: HTMLInputElement;
  argument: HTMLInputElement | null;
}

interface SizeField {
  name: "items" | "repeat" | "prompt" | "generate";
  label: string;
  value: number;
  min: number;
  max: number;
}

const sizes: SizeField[] = [
  { name: "items", label: "Items per suite", value: 20, min: 1, max: 65536 },
  { name: "repeat", label: "Rounds of timing", value: 3, min: 0, max: 100 },
  { name: "prompt", label: "Prompt tokens", value: 256, min: 1, max: 1 << 20 },
  { name: "generate", label: "Answer tokens", value: 64, min: 2, max: 1 << 20 },
];

export class ComparisonForm {
  readonly root: HTMLElement;
  ended = false; // a running comparison was cancelled by end()
  private readonly configs = el("div", { class: "builders" });
  private readonly model = el("select", { id: "compare-model" });
  private readonly state = el("p", { class: "compare-about", role: "status" });
  private readonly bar = el("progress", { max: "1", "aria-label": "Progress of the comparison", hidden: true });
  private readonly run = el("button", { type: "submit", class: "button primary" }, "Run");
  private readonly cancel = el("button", { type: "button", class: "button", hidden: true, onclick: () => this.abort?.abort() }, "Cancel");
  private readonly fields = sizes.map((one) => ({ ...one, input: el("input", { type: "number", id: `compare-${one.name}`, min: one.min, max: one.max, value: one.value, required: true }) }));
  private readonly suites: SuiteChoice[];
  private builders: ConfigBuilder[] = [];
  private made = 0; // configurations so far; numbers are not used twice
  private text = "";
  private abort: AbortController | null = null;

  constructor(private readonly registry: Registry, private readonly finished: (done: Finished) => void) {
    this.model.append(...app.models.map((one) => el("option", { value: one.id, selected: one.id === modelName() }, one.id)));
    this.suites = registry.suites.filter((one) => one.over_http).map((suite) => this.suiteChoice(suite));
    const add = el("button", { type: "button", class: "button", onclick: () => this.add() }, icon("plus"), "Add a configuration");
    this.root = el("form", { class: "compare-form", "aria-label": "A comparison", novalidate: true, onsubmit: (event: Event) => {
      event.preventDefault();
      void this.start();
    } },
      el("div", { class: "compare-model-row" }, el("label", { for: "compare-model" }, "Model"), this.model),
      this.configs, add,
      el("fieldset", { class: "compare-suites" }, el("legend", {}, "Measure"), ...this.suites.map((one) => this.suiteRow(one)), this.textPicker()),
      el("fieldset", { class: "compare-sizes" }, el("legend", {}, "How much"), ...this.fields.map(({ name, label, input }) => el("div", {}, el("label", { for: `compare-${name}` }, label), input))),
      el("div", { class: "compare-run" }, this.run, this.cancel, this.bar, this.state));
    this.add("Base", []);
    this.add(undefined, [{ family: "kv_format", name: "q8_0", values: {} }]);
    this.say("It runs on the server's machine, next to its other requests, which disturb the times of each other.");
  }

  end(): void {
    this.ended = this.abort !== null;
    this.abort?.abort();
  }

  private say(text: string): void {
    this.state.textContent = text;
    this.state.classList.remove("wrong");
  }

  private fail(text: string): void {
    this.say(text);
    this.state.classList.add("wrong");
  }

  private add(title?: string, parts: ConstructorParameters<typeof ConfigBuilder>[2] = []): void {
    if (this.builders.length > MOST_CONFIGURATIONS) return this.fail(`A comparison has at most ${MOST_CONFIGURATIONS} configurations and its base.`);
    const name = title ?? `Configuration ${++this.made}`;
    const builder: ConfigBuilder = new ConfigBuilder(this.registry, {
      title: name, families: this.registry.compare_families, models: app.models.length > 1 ? app.models.map((one) => one.id) : [],
      ...(title ? {} : { remove: () => this.remove(builder) }),
    }, parts);
    this.builders.push(builder);
    this.configs.append(builder.root);
  }

  private remove(builder: ConfigBuilder): void {
    this.builders = this.builders.filter((one) => one !== builder);
    builder.root.remove();
    this.configs.querySelector<HTMLElement>(".add-part")?.focus();
  }

  private suiteChoice(suite: SuiteJson): SuiteChoice {
    const chosen = el("input", { type: "checkbox", id: `suite-${suite.name}`, checked: suite.name === "needle", "aria-describedby": `suite-${suite.name}-about` });
    const takesArgument = suite.argument !== "" && !suite.argument.includes("TRACE");
    const argument = takesArgument ? el("input", { type: "text", "aria-label": `${suite.argument.replace(/[[\]:]/g, "")} of ${suite.name}`, placeholder: suite.argument.replace(/[[\]:]/g, ""), value: DEFAULT_ARGUMENTS[suite.name], spellcheck: "false" }) : null;
    return { suite, chosen, argument };
  }

  private suiteRow({ suite, chosen, argument }: SuiteChoice): HTMLElement {
    return el("div", { class: "suite" }, el("label", { class: "check", for: chosen.id }, chosen, el("span", {}, suite.name, el("small", { id: `${chosen.id}-about` }, plainSummary(suite.summary)))), argument);
  }

  private textPicker(): HTMLElement {
    const name = el("span", { class: "hint" }, "None. perplexity and documents need one.");
    const file = el("input", { type: "file", accept: ".txt,.md,text/*", hidden: true, tabindex: "-1", "aria-hidden": "true", onchange: async () => {
      const chosen = file.files?.[0];
      file.value = "";
      if (!chosen) return;
      if (chosen.size > MOST_TEXT) return this.fail(`${chosen.name} is larger than ${MOST_TEXT >> 20} MB.`);
      this.text = await chosen.text();
      name.textContent = chosen.name;
    } });
    return el("div", { class: "compare-text" }, el("button", { type: "button", class: "button", onclick: () => file.click() }, icon("file"), "Choose a text"), name, file);
  }

  // Throws an Error with a sentence for the user.
  private body(): ComparisonBody {
    if (this.builders.length < 2) throw new Error("Add a configuration to compare with the base.");
    const wrong = this.builders.map((one) => one.wrong()).find((one) => one !== "");
    if (wrong) throw new Error(wrong);
    const [base, ...others] = this.builders.map((one) => one.spec());
    const same = others.find((one, i) => one === base || others.indexOf(one) !== i);
    if (same !== undefined) throw new Error(`Two configurations are the same: ${same}.`);
    const suites = this.suites.filter((one) => one.chosen.checked).map(({ suite, argument }) => {
      const given = argument?.value.trim() ?? "";
      if (suite.argument !== "" && !suite.argument.includes("[") && given === "") throw new Error(`${suite.name} needs its ${suite.argument}.`);
      if ((suite.name === "perplexity" || suite.name === "documents") && this.text === "") throw new Error(`${suite.name} needs a text: choose one.`);
      return given === "" ? suite.name : `${suite.name}:${given}`;
    });
    const out: ComparisonBody = { model: this.model.value, base: base!, with: others, suites };
    for (const { name, label, min, max, input } of this.fields) {
      const value = Number(input.value);
      if (!Number.isInteger(value) || value < min || value > max) throw new Error(`${label}: a whole number from ${min} to ${max}.`);
      out[name] = value;
    }
    if (suites.length === 0 && out.repeat === 0) throw new Error("Choose something to measure.");
    if (this.text) out.text = this.text;
    return out;
  }

  private async start(): Promise<void> {
    if (this.abort) return;
    let body: ComparisonBody;
    try {
      body = this.body();
    } catch (error) {
      return this.fail(reason(error));
    }
    const abort = (this.abort = new AbortController());
    this.working(true);
    this.say("Starting …");
    try {
      const done = await runComparison(body, abort.signal, (part, fraction) => this.progress(part, fraction));
      this.say("Finished.");
      this.finished(done);
    } catch (error) {
      if (abort.signal.aborted) this.say("Cancelled.");
      else this.fail(reason(error));
    }
    this.abort = null;
    this.working(false);
  }

  private progress(part: string, fraction: number): void {
    const whole = overall(part, fraction);
    this.bar.value = whole;
    const text = part === "loading" ? "Loading …" : part === "read rate" ? "Measuring how fast this machine reads …" : `Part ${part}`;
    if (this.state.textContent !== text) this.say(text);
  }

  private working(on: boolean): void {
    const focus = on ? this.cancel : this.run, had = document.activeElement === this.run || document.activeElement === this.cancel;
    this.run.hidden = on;
    this.cancel.hidden = this.bar.hidden = !on;
    if (!on) this.bar.removeAttribute("value");
    if (had) focus.focus({ preventScroll: true });
  }
}
