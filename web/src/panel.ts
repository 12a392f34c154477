// The settings panel: the system prompt and the sampling fields, with bounds and descriptions from the server's schema.
import { readSchema } from "./answer_settings";
import { app } from "./app";
import { el } from "./dom";
import { promptLibrary, type SystemPrompt } from "./prompt_library";

interface Shown {
  field: string;
  label: string;
  step: string;
  slider?: [number, number]; // the useful range, if narrower than what the server accepts
  default?: string;          // its name in the parameters of /props
}

const groups: [string, Shown[]][] = [
  ["Sampling", [
    { field: "temperature", label: "Temperature", step: "0.05", slider: [0, 2] },
    { field: "top_p", label: "Top p", step: "0.01", slider: [0, 1] },
    { field: "top_k", label: "Top k", step: "1", slider: [0, 200] },
    { field: "min_p", label: "Min p", step: "0.01", slider: [0, 0.5] },
  ]],
  ["Penalties", [
    { field: "repetition_penalty", label: "Repetition", step: "0.01", slider: [0.8, 1.5], default: "repeat_penalty" },
    { field: "presence_penalty", label: "Presence", step: "0.1", slider: [-2, 2] },
    { field: "frequency_penalty", label: "Frequency", step: "0.1", slider: [-2, 2] },
  ]],
  ["Answer", [
    { field: "max_tokens", label: "Max tokens", step: "1", default: "n_predict" },
    { field: "seed", label: "Seed", step: "1" },
  ]],
];

export class Panel {
  readonly root = el("aside", { class: "panel", id: "panel", "aria-label": "Generation settings", hidden: true });

  constructor(private readonly system: SystemPrompt) {}

  draw(): void {
    const logprobs = el("input", { type: "checkbox", id: "logprobs", checked: app.settings.logprobs });
    logprobs.addEventListener("change", () => {
      app.settings.logprobs = logprobs.checked;
      app.saveSettings();
    });
    const fieldsets = groups.map(([name, shown]) => {
      const rows = shown.filter(({ field }) => Object.keys(app.fields).length === 0 || field in app.fields).map((one) => this.row(one));
      return el("fieldset", {}, el("legend", {}, name), ...rows);
    });
    this.root.replaceChildren(
      promptLibrary(this.system),
      ...fieldsets,
      this.stop(),
      this.schema(),
      el("label", { class: "check", for: "logprobs" }, logprobs, el("span", {}, "Token probabilities", el("small", {}, "Request them with each answer; a button below the answer shows them."))),
      el("button", { type: "button", class: "button", onclick: () => {
        app.settings.sampling = {};
        app.settings.stop = app.settings.schema = "";
        app.saveSettings();
        this.draw();
      } }, "Reset to server defaults"));
  }

  private stop(): HTMLElement {
    const field = el("textarea", { id: "stop", rows: "2", placeholder: "None", spellcheck: "false", "aria-describedby": "stop-hint" });
    field.value = app.settings.stop;
    field.addEventListener("input", () => {
      app.settings.stop = field.value;
      app.saveSettings();
    });
    return el("div", { class: "panel-part" }, el("label", { class: "part-label", for: "stop" }, "Stop strings"), field,
      el("p", { class: "hint", id: "stop-hint" }, "One a line; \\n is a newline. An answer ends before the first of them."));
  }

  private schema(): HTMLElement {
    const field = el("textarea", { id: "schema", class: "mono", rows: "4", placeholder: "None", spellcheck: "false", "aria-describedby": "schema-hint" });
    const hint = el("p", { class: "hint", id: "schema-hint", role: "status" });
    const check = (): void => {
      const { error } = readSchema(field.value);
      field.setAttribute("aria-invalid", String(error !== ""));
      hint.classList.toggle("wrong", error !== "");
      hint.textContent = error || "Answers are JSON that matches it.";
    };
    field.value = app.settings.schema;
    field.addEventListener("input", () => {
      app.settings.schema = field.value;
      app.saveSettings();
      check();
    });
    check();
    return el("div", { class: "panel-part" }, el("label", { class: "part-label", for: "schema" }, "JSON Schema"), field, hint);
  }

  private row(one: Shown): HTMLElement {
    const schema = app.fields[one.field] ?? {};
    const { sampling } = app.settings;
    const given = app.props.default_generation_settings?.params?.[one.default ?? one.field];
    const standard = given === undefined || ((one.field === "max_tokens" || one.field === "seed") && given < 0) ? (one.field === "seed" ? "random" : "no limit") : String(Math.round(given * 1e4) / 1e4);
    const least = Math.max(schema.minimum ?? -Infinity, -Number.MAX_SAFE_INTEGER);
    const most = Math.min(schema.maximum ?? Infinity, Number.MAX_SAFE_INTEGER);
    const field = el("input", { type: "number", id: `field-${one.field}`, step: one.step, placeholder: standard, inputmode: "decimal",
      min: Number.isFinite(least) ? least : undefined, max: Number.isFinite(most) ? most : undefined, "aria-describedby": `help-${one.field}` });
    if (sampling[one.field] !== undefined) field.value = String(sampling[one.field]);
    const slider = one.slider && el("input", { type: "range", min: one.slider[0], max: one.slider[1], step: one.step, "aria-label": one.label, tabindex: "-1" });
    const show = (): void => {
      if (slider) slider.value = String(sampling[one.field] ?? given ?? one.slider![0]);
      row.classList.toggle("set", sampling[one.field] !== undefined);
    };
    const set = (text: string): void => {
      const value = Number(text);
      if (text.trim() === "" || !Number.isFinite(value) || value < least || value > most) delete sampling[one.field];
      else sampling[one.field] = value;
      app.saveSettings();
      show();
    };
    field.addEventListener("input", () => set(field.value));
    slider?.addEventListener("input", () => {
      field.value = slider.value;
      set(slider.value);
    });
    const row = el("div", { class: "field" }, el("label", { for: `field-${one.field}` }, one.label), field, slider, el("p", { class: "help", id: `help-${one.field}` }, schema.description ?? ""));
    show();
    return row;
  }
}
