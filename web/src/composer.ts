// The message composer: a growing text field, attached files, and the button that sends or stops.
import { countText } from "./api";
import { app, modelName } from "./app";
import { el, icon, iconButton } from "./dom";
import { byteLength, isLong, size } from "./text";
import type { TextFile } from "./tree";

export interface ComposerActions {
  send(text: string, files: TextFile[]): void;
  stop(): void;
  tooLong(text: string, files: TextFile[]): Promise<string>; // a sentence if the model cannot read the message; or ""
}

const CHECK_PAUSE = 400; // ms without a change, after which the length is checked
const MOST_FILES = 8;
const pastedName = (number: number): string => `pasted-${number}.txt`;
const MOST_FILE_BYTES = 512 * 1024;

const tooLarge = (name: string): string => `${name} is larger than ${MOST_FILE_BYTES / 1024} KiB.`;

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
  if (byteLength(text) < context) return null; // a token has at least one byte
  const tokens = await countText(modelName(), text).catch(() => 0);
  return tokens < context ? null : `${file.name} has ${tokens} tokens, more than the ${context} that ${modelName()} can read.`;
}

export class Composer {
  readonly root: HTMLElement;
  readonly field = el("textarea", { id: "composer", rows: "1", placeholder: "Message", "aria-label": "Message", enterkeyhint: "send", autocomplete: "off", dir: "auto" });
  private readonly chips = el("div", { class: "chips", "aria-label": "Attached files" });
  private readonly button = el("button", { type: "submit", class: "send" });
  private readonly picker = el("input", { type: "file", multiple: true, hidden: true, "aria-hidden": "true", tabindex: "-1" });
  private readonly warning = el("p", { class: "composer-warning", role: "status", hidden: true });
  private files: TextFile[] = [];
  private working = false;
  private timer = 0;

  constructor(private readonly actions: ComposerActions) {
    const form = el("form", { class: "composer", "aria-label": "New message" }, this.warning, this.chips,
      el("div", { class: "composer-row" }, iconButton("clip", "Attach text files", () => this.picker.click()), this.field, this.button), this.picker);
    this.root = el("div", { class: "composer-place" }, form);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.working) this.actions.stop();
      else this.submit();
    });
    this.field.addEventListener("input", () => {
      this.resize();
      this.checkLength();
    });
    this.field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      if (!this.working) this.submit();
    });
    this.field.addEventListener("paste", (event) => {
      const files = [...(event.clipboardData?.files ?? [])];
      const text = event.clipboardData?.getData("text/plain") ?? "";
      if (files.length > 0) return void this.take(files);
      if (!isLong(text) || this.files.length >= MOST_FILES) return;
      event.preventDefault();
      this.takePasted(text);
    });
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
      else if (file.size > MOST_FILE_BYTES) app.notice(tooLarge(file.name));
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

  // Attaches a long pasted text as a file, which is shown as a chip.
  private takePasted(text: string): void {
    const names = new Set(this.files.map((file) => file.name));
    let number = 1;
    while (names.has(pastedName(number))) ++number;
    const name = pastedName(number);
    if (byteLength(text) > MOST_FILE_BYTES) return app.notice(tooLarge(name));
    this.files.push({ name, text });
    this.drawChips();
    app.say("The pasted text is attached.");
  }

  // Puts an attached text into the field, where it can be edited.
  private unfold(index: number): void {
    const [file] = this.files.splice(index, 1);
    const { selectionStart, selectionEnd } = this.field;
    this.field.setRangeText(file!.text, selectionStart, selectionEnd, "end");
    this.drawChips();
    this.resize();
    this.field.focus();
  }

  // Says that the message is too long before it is sent. A later change of the message ends the check.
  checkLength(): void {
    clearTimeout(this.timer);
    this.timer = window.setTimeout(async () => {
      const text = this.field.value, { files } = this, timer = this.timer;
      const warning = text.trim() === "" && files.length === 0 ? "" : await this.actions.tooLong(text.trim(), files);
      if (timer !== this.timer) return;
      this.warning.hidden = warning === "";
      if (this.warning.textContent !== warning) this.warning.textContent = warning;
    }, CHECK_PAUSE);
  }

  private drawChips(): void {
    this.checkLength();
    this.chips.replaceChildren(...this.files.map((file, index) =>
      el("span", { class: "chip" }, icon("file"), el("span", {}, file.name, el("small", {}, ` ${size(file.text.length)}`)),
        iconButton("edit", `Put ${file.name} into the message`, () => this.unfold(index)), iconButton("close", `Remove ${file.name}`, () => {
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
    this.actions.send(text, files);
  }

  private resize(): void {
    this.field.style.height = "auto";
    this.field.style.height = `${Math.min(this.field.scrollHeight, window.innerHeight * 0.4)}px`;
  }
}
