// The message composer: a growing text field, attached files, and the button that sends or stops.
import { countText } from "./api";
import { app, modelName } from "./app";
import { el, icon, iconButton } from "./dom";
import type { TextFile } from "./tree";

const MOST_FILES = 8;
const MOST_FILE_BYTES = 512 * 1024;

// The bytes as text if they are UTF-8 without NUL; else null.
export function textOf(bytes: Uint8Array): string | null {
  if (bytes.includes(0)) return null;
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return null;
  }
}

const unreadable: [RegExp, string][] = [
  [/^image\/(?!svg)/, "is an image"],
  [/^audio\//, "is an audio file"],
  [/^video\//, "is a video"],
  [/^application\/pdf$/, "is a PDF"],
];

// Why the model cannot read a file; null if it can.
async function whyNot(file: File, text: string | null): Promise<string | null> {
  for (const [type, what] of unreadable) if (type.test(file.type)) return `${file.name} ${what}, and ${modelName() || "the model"} reads text only.`;
  if (text === null) return `${file.name} is not a text file.`;
  const context = app.models.find((one) => one.id === modelName())?.max_model_len ?? Infinity;
  if (text.length <= context) return null; // a token has at least one character
  const tokens = await countText(text).catch(() => 0);
  return tokens < context ? null : `${file.name} has ${tokens} tokens, more than the ${context} that ${modelName()} can read.`;
}

export class Composer {
  readonly root: HTMLElement;
  readonly field = el("textarea", { id: "composer", rows: "1", placeholder: "Message", "aria-label": "Message", enterkeyhint: "send", autocomplete: "off" });
  private readonly chips = el("div", { class: "chips", "aria-label": "Attached files" });
  private readonly button = el("button", { type: "submit", class: "send" });
  private readonly picker = el("input", { type: "file", multiple: true, hidden: true, "aria-hidden": "true", tabindex: "-1" });
  private files: TextFile[] = [];
  private working = false;

  constructor(private readonly send: (text: string, files: TextFile[]) => void, private readonly stop: () => void) {
    const form = el("form", { class: "composer", "aria-label": "New message" }, this.chips,
      el("div", { class: "composer-row" }, iconButton("clip", "Attach text files", () => this.picker.click()), this.field, this.button), this.picker);
    this.root = el("div", { class: "composer-place" }, form);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.working) this.stop();
      else this.submit();
    });
    this.field.addEventListener("input", () => this.resize());
    this.field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      if (!this.working) this.submit();
    });
    this.field.addEventListener("paste", (event) => void this.take([...(event.clipboardData?.files ?? [])]));
    this.picker.addEventListener("change", () => {
      void this.take([...(this.picker.files ?? [])]);
      this.picker.value = "";
    });
    this.setWorking(false);
  }

  setWorking(working: boolean): void {
    this.working = working;
    this.button.replaceChildren(icon(working ? "stop" : "send"));
    this.button.setAttribute("aria-label", working ? "Stop" : "Send");
    this.button.title = working ? "Stop (Esc)" : "Send (Enter)";
    this.button.classList.toggle("stop", working);
  }

  set(text: string): void {
    this.field.value = text;
    this.resize();
    this.field.focus();
  }

  // Adds files that were picked, dropped or pasted.
  async take(files: File[]): Promise<void> {
    for (const file of files) {
      if (this.files.length >= MOST_FILES) app.notice(`A message can have at most ${MOST_FILES} files.`);
      else if (file.size > MOST_FILE_BYTES) app.notice(`${file.name} is larger than ${MOST_FILE_BYTES / 1024} KiB.`);
      else {
        const bytes = await file.arrayBuffer().catch(() => null); // a folder, or a deleted file
        const text = bytes && textOf(new Uint8Array(bytes));
        const why = bytes ? await whyNot(file, text) : `${file.name} cannot be read.`;
        if (why) app.notice(why);
        else this.files.push({ name: file.name, text: text! });
      }
    }
    this.drawChips();
  }

  private drawChips(): void {
    this.chips.replaceChildren(...this.files.map((file, index) =>
      el("span", { class: "chip" }, icon("file"), el("span", {}, file.name), iconButton("close", `Remove ${file.name}`, () => {
        this.files.splice(index, 1);
        this.drawChips();
        this.field.focus();
      }))));
  }

  private submit(): void {
    const text = this.field.value.trim();
    if (!text && this.files.length === 0) return;
    const files = this.files;
    this.files = [];
    this.field.value = "";
    this.drawChips();
    this.resize();
    this.send(text, files);
  }

  private resize(): void {
    this.field.style.height = "auto";
    this.field.style.height = `${Math.min(this.field.scrollHeight, window.innerHeight * 0.4)}px`;
  }
}
