// The part of the settings panel with the system prompt and the library of saved ones.
import { app } from "./app";
import { el } from "./dom";
import { loadPrompts, MOST_PROMPTS, nameOf, savePrompts, withPrompt, type SavedPrompt } from "./prompts";

export interface SystemPrompt {
  get(): string;
  set(text: string): void;
}

export function promptLibrary(system: SystemPrompt): HTMLElement {
  const field = el("textarea", { id: "system", rows: "5", placeholder: "None", dir: "auto" });
  const choice = el("select", { "aria-label": "Saved system prompts" });
  const name = el("input", { type: "text", "aria-label": "Name of the system prompt", maxlength: "80", hidden: true });
  const save = el("button", { type: "button", class: "quiet" }, "Save");
  const remove = el("button", { type: "button", class: "quiet" }, "Delete");
  let prompts = loadPrompts();
  field.value = system.get();

  const chosen = (): SavedPrompt | undefined => prompts.find((one) => one.text === field.value);
  const show = (): void => {
    const now = chosen();
    choice.replaceChildren(el("option", { value: "" }, prompts.length > 0 ? "Saved prompts" : "No saved prompts"),
      ...prompts.map((one) => el("option", { value: one.name, selected: one === now }, one.name)));
    choice.disabled = prompts.length === 0;
    save.disabled = field.value.trim() === "" || now !== undefined;
    remove.disabled = now === undefined;
  };
  // Returns false, after a notice, if the list is not stored.
  const keep = (list: SavedPrompt[]): boolean => {
    const full = list.length > MOST_PROMPTS;
    if (full || !savePrompts(list)) {
      app.notice(full ? `The library is full: delete one of its ${MOST_PROMPTS} prompts first.` : "This browser cannot store the system prompt.");
      return false;
    }
    prompts = list;
    show();
    return true;
  };
  const focusChoice = (): void => (choice.disabled ? field : choice).focus();
  const endNaming = (store: boolean): void => {
    if (name.hidden) return;
    name.hidden = true;
    save.textContent = "Save";
    if (store && name.value.trim()) {
      // Another tab may have changed the library.
      if (keep(withPrompt(loadPrompts(), { name: name.value.trim(), text: field.value }))) app.say("Saved");
    }
    focusChoice();
  };
  field.addEventListener("input", () => {
    system.set(field.value);
    show();
  });
  choice.addEventListener("change", () => {
    const one = prompts.find((other) => other.name === choice.value);
    if (!one) return;
    field.value = one.text;
    system.set(one.text);
    show();
  });
  save.addEventListener("click", () => {
    if (!name.hidden) return endNaming(true);
    name.hidden = false;
    name.value = nameOf(field.value);
    save.textContent = "Save under this name";
    name.select();
  });
  name.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== "Escape") return;
    event.stopPropagation();
    endNaming(event.key === "Enter");
  });
  remove.addEventListener("click", () => {
    const one = chosen();
    if (one) keep(loadPrompts().filter((other) => other.name !== one.name));
    focusChoice();
  });
  show();
  return el("div", { class: "panel-part" }, el("label", { class: "part-label", for: "system" }, "System prompt"), field, name,
    el("div", { class: "library" }, choice, save, remove), el("p", { class: "hint" }, "For this conversation and new ones. Saved ones stay in this browser."));
}
