// Builds one configuration from the registry: families, members, and options with their help.
import { el, iconButton } from "../dom";
import { familyName, partText, specText, wrongValue, type MemberJson, type OptionJson, type Part, type Registry } from "./spec";

export interface BuilderOptions {
  title: string;
  families: string[];
  models: string[];       // of the server, to choose another one; empty: no choice
  remove?: () => void;
  changed?: () => void;
}

let nextId = 0;

export class ConfigBuilder {
  readonly root: HTMLElement;
  private readonly list = el("div", { class: "parts" });
  private readonly text = el("code", { class: "spec" });
  private readonly model = el("select", {});
  private readonly parts: Part[] = [];
  private readonly id = `builder-${nextId++}`;

  constructor(private readonly registry: Registry, private readonly options: BuilderOptions, parts: Part[] = []) {
    this.parts.push(...parts);
    const { title, models, remove } = options;
    this.model.append(el("option", { value: "" }, "the model above"), ...models.map((name) => el("option", { value: name }, name)));
    this.model.setAttribute("aria-label", `Model of ${title}`);
    this.model.addEventListener("change", () => this.show());
    const add = el("button", { type: "button", class: "quiet add-part", onclick: () => this.add() }, "Add a technique");
    this.root = el("section", { class: "builder", "aria-labelledby": this.id },
      el("header", {}, el("h3", { id: this.id }, title), models.length > 0 && this.model, remove && iconButton("close", `Remove ${title}`, remove)),
      this.list, add, el("p", { class: "spec-line" }, this.text));
    this.draw();
  }

  spec(): string {
    return specText(this.parts, this.model.value);
  }

  // The choices alone, as a request's millrace.use has them.
  uses(): string[] {
    return this.parts.map(partText);
  }

  // Returns why the values are wrong; "" if they are not.
  wrong(): string {
    for (const part of this.parts) {
      for (const option of this.member(part)?.options ?? []) {
        const why = wrongValue(option, part.values[option.name] ?? "");
        if (why) return `${this.options.title}, ${part.name}: ${why}`;
      }
    }
    return "";
  }

  private members(family: string): MemberJson[] {
    return this.registry.techniques.filter((one) => one.family === family);
  }

  private member(part: Part): MemberJson | undefined {
    return this.members(part.family).find((one) => one.name === part.name);
  }

  private add(): void {
    const used = new Set(this.parts.map((part) => part.family));
    const family = this.options.families.find((one) => !used.has(one) && this.members(one).length > 0);
    if (!family) return;
    this.parts.push({ family, name: this.members(family)[0]!.name, values: {} });
    this.draw();
    this.list.lastElementChild?.querySelector<HTMLElement>("select")?.focus();
  }

  private show(): void {
    this.text.textContent = this.spec();
    this.options.changed?.();
  }

  private draw(): void {
    this.list.replaceChildren(...this.parts.map((part, index) => this.row(part, index)));
    this.show();
  }

  private redraw(index: number, control: string): void {
    this.draw();
    this.list.children[index]?.querySelector<HTMLElement>(control)?.focus();
  }

  private row(part: Part, index: number): HTMLElement {
    const taken = new Set(this.parts.filter((other) => other !== part).map((other) => other.family)); // a family occurs once
    const family = el("select", { class: "part-family", "aria-label": "Family" },
      ...this.options.families.filter((one) => this.members(one).length > 0).map((one) => el("option", { value: one, selected: one === part.family, disabled: taken.has(one) }, familyName(one))));
    const member = el("select", { class: "part-member", "aria-label": familyName(part.family) },
      ...this.members(part.family).map((one) => el("option", { value: one.name, selected: one.name === part.name }, one.lossless === false ? `${one.name} (lossy)` : one.name)));
    family.addEventListener("change", () => {
      Object.assign(part, { family: family.value, name: this.members(family.value)[0]!.name, values: {} });
      this.redraw(index, ".part-family");
    });
    member.addEventListener("change", () => {
      Object.assign(part, { name: member.value, values: {} });
      this.redraw(index, ".part-member");
    });
    const chosen = this.member(part);
    const options = chosen?.options ?? [];
    return el("div", { class: "part", role: "group", "aria-label": `${familyName(part.family)} ${part.name}` },
      el("div", { class: "part-head" }, family, member, iconButton("close", `Remove ${part.name}`, () => {
        this.parts.splice(index, 1);
        this.draw();
        this.root.querySelector<HTMLElement>(".add-part")?.focus();
      })),
      el("p", { class: "hint" }, chosen?.summary ?? ""),
      options.length > 0 && el("details", { open: Object.keys(part.values).length > 0 }, el("summary", {}, `Options (${options.length})`),
        ...options.map((option) => this.option(part, index, option))));
  }

  private option(part: Part, index: number, option: OptionJson): HTMLElement {
    const id = `${this.id}-${index}-${part.family}-${option.name}`;
    const field = option.type === "boolean"
      ? el("select", { id }, el("option", { value: "" }, `default: ${option.default}`), el("option", { value: "true" }, "true"), el("option", { value: "false" }, "false"))
      : el("input", { id, type: option.type === "text" ? "text" : "number", step: option.type === "integer" ? "1" : "any", min: option.min, max: option.max, placeholder: option.default || "none", spellcheck: "false", autocomplete: "off" });
    field.setAttribute("aria-describedby", `${id}-help`);
    field.value = part.values[option.name] ?? "";
    field.addEventListener("input", () => {
      part.values[option.name] = field.value;
      field.setAttribute("aria-invalid", String(wrongValue(option, field.value) !== ""));
      this.show();
    });
    return el("div", { class: "option" }, el("label", { for: id }, option.name), field, el("small", { id: `${id}-help` }, option.help));
  }
}
