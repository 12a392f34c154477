// The view of one message.
import { el, icon, iconButton } from "./dom";
import { copyText, MarkdownView } from "./markdown";
import { isLong, size } from "./text";
import { TokenView } from "./tokens";
import type { Message } from "./tree";

export interface MessageActions {
  regenerate(message: Message): void;
  edit(message: Message, text: string): void;
  turn(message: Message, by: number): void;
  trim(message: Message): Promise<void>;
  askInNewConversation(message: Message): Promise<void>;
}

const MEASURABLE = 16;      // tokens: the speed of fewer is noise

const endings: Record<string, string> = {
  length: "Token limit reached",
  stopped: "Stopped",
  elsewhere: "Continued in another tab",
  too_long: "Not sent: too long",
  not_sent: "Not sent",
  error: "Ended with an error",
};

export class MessageView {
  readonly root: HTMLElement;
  private readonly body = el("div", { class: "message-body" });
  private readonly foot = el("div", { class: "message-foot" });
  private markdown: MarkdownView | null = null;
  private tokens: TokenView | null = null;
  private reasoning: { box: HTMLDetailsElement; text: HTMLElement } | null = null;
  private showTokens = false;
  private showFacts = false;
  private unfolded = false;
  private working = false;

  constructor(readonly message: Message, private readonly actions: MessageActions, private placed: { index: number; count: number }) {
    const who = message.role === "user" ? "You" : (message.model ?? "Assistant");
    this.root = el("article", { class: `message ${message.role}`, "aria-label": who, "data-id": message.id }, this.body, this.foot);
    if (message.role === "user") this.drawUser();
    this.update(false);
  }

  place(placed: { index: number; count: number }): void {
    this.placed = placed;
    if (!this.root.classList.contains("editing")) this.drawFoot();
  }

  update(working: boolean): void {
    const { message } = this;
    const ended = this.working && !working;
    this.working = working;
    this.root.classList.toggle("working", working);
    if (message.role === "assistant") this.drawAnswer();
    if (!working || ended) this.drawFoot();
    else if (this.foot.childElementCount > 0) this.foot.replaceChildren();
  }

  private drawUser(): void {
    const files = (this.message.files ?? []).map((file) =>
      el("details", { class: "file" }, el("summary", {}, icon("file"), el("span", {}, file.name), el("small", {}, size(file.text.length))), el("pre", { tabindex: "0" }, file.text)));
    this.body.replaceChildren(...files, ...(this.message.content ? [this.said()] : []));
  }

  // A long text is folded to its beginning.
  private said(): HTMLElement {
    const { content } = this.message;
    const text = el("div", { class: "said", dir: "auto" }, content);
    if (!isLong(content)) return text;
    const id = `said-${this.message.id}`;
    const button = el("button", { type: "button", class: "quiet unfold", "aria-controls": id, onclick: () => {
      this.unfolded = !this.unfolded;
      show();
    } });
    const show = (): void => {
      text.classList.toggle("folded", !this.unfolded);
      button.setAttribute("aria-expanded", String(this.unfolded));
      button.textContent = this.unfolded ? "Show less" : `Show all ${size(content.length)}`;
    };
    text.id = id;
    show();
    return el("div", { class: "said-long" }, text, button);
  }

  private drawAnswer(): void {
    const { message } = this;
    if (message.reasoning) this.drawReasoning(message.reasoning);
    if (this.showTokens && message.tokens) {
      if (!this.tokens) this.body.append((this.tokens = new TokenView()).root);
      this.markdown?.root.remove();
      this.markdown = null;
      this.tokens.update(message.tokens);
    } else {
      if (!this.markdown) this.body.append((this.markdown = new MarkdownView()).root);
      this.tokens?.root.remove();
      this.tokens = null;
      this.markdown.update(message.content);
    }
    if (message.error) {
      const box = this.body.querySelector(".failure") ?? el("p", { class: "failure", role: "alert" });
      box.textContent = message.error;
      if (message.finish === "too_long") box.append(this.tooLongActions());
      this.body.append(box);
    }
  }

  // Buttons for a conversation that no longer fits the model's context.
  private tooLongActions(): HTMLElement {
    return el("span", { class: "ways-out" },
      el("button", { type: "button", class: "button", onclick: () => void this.actions.trim(this.message) }, "Leave out the oldest messages"),
      el("button", { type: "button", class: "button", onclick: () => void this.actions.askInNewConversation(this.message) }, "Ask in a new conversation"));
  }

  private drawReasoning(text: string): void {
    if (!this.reasoning) {
      const inside = el("div", { class: "reasoning-text" });
      const box = el("details", { class: "reasoning" }, el("summary", {}, "Reasoning"), inside);
      this.reasoning = { box, text: inside };
      this.body.prepend(box);
    }
    this.reasoning.text.textContent = text;
  }

  private drawFoot(): void {
    const { message, placed } = this;
    const parts: (Node | false)[] = [];
    if (placed.count > 1) {
      parts.push(el("div", { class: "branches", role: "group", "aria-label": "Versions" },
        iconButton("left", "Previous version", () => this.actions.turn(message, -1), { disabled: placed.index === 0 }),
        el("span", { "aria-label": `Version ${placed.index + 1} of ${placed.count}` }, `${placed.index + 1} / ${placed.count}`),
        iconButton("right", "Next version", () => this.actions.turn(message, 1), { disabled: placed.index === placed.count - 1 })));
    }
    const copy = iconButton("copy", "Copy message", () => void copyText(message.content, copy));
    parts.push(copy);
    if (message.role === "user") parts.push(iconButton("edit", "Edit message", () => this.startEdit()));
    if (message.role === "assistant") {
      parts.push(iconButton("redo", "Regenerate", () => this.actions.regenerate(message)));
      if (message.tokens?.length) {
        parts.push(iconButton("tokens", "Token probabilities", () => this.toggleTokens(), { "aria-pressed": String(this.showTokens) }));
      }
      const facts = this.facts();
      if (facts.length > 0) {
        parts.push(iconButton("info", "Details of this answer", () => this.toggleFacts(), { "aria-expanded": String(this.showFacts), "data-facts": "" }));
      }
      parts.push(el("span", { class: "facts" }, ...this.ending(), ...(this.showFacts ? facts : [])));
    }
    this.foot.replaceChildren(...parts.filter((part): part is Node => part !== false));
  }

  private toggleFacts(): void {
    this.showFacts = !this.showFacts;
    this.drawFoot();
    this.foot.querySelector<HTMLElement>("[data-facts]")?.focus();
  }

  private ending(): Node[] {
    const text = endings[this.message.finish ?? ""];
    return text ? [el("span", {}, text)] : [];
  }

  private facts(): Node[] {
    const { usage, firstSeconds, seconds, seed } = this.message;
    const out: string[] = [];
    const count = usage?.generated ?? this.message.tokens?.length ?? 0;
    if (count > 0) out.push(`${count} tokens`);
    if (count >= MEASURABLE && seconds !== undefined && firstSeconds !== undefined && seconds > firstSeconds) out.push(`${((count - 1) / (seconds - firstSeconds)).toFixed(0)} tokens/s`);
    if (firstSeconds !== undefined) out.push(`first token after ${(firstSeconds * 1000).toFixed(0)} ms`);
    if (usage && usage.cached > 0) out.push(`${usage.cached} of ${usage.prompt} prompt tokens cached`);
    if (seed) out.push(`seed ${seed}`);
    return out.map((text) => el("span", {}, text));
  }

  private toggleTokens(): void {
    this.showTokens = !this.showTokens;
    this.update(this.working);
    this.drawFoot();
    this.foot.querySelector<HTMLElement>('[aria-pressed]')?.focus();
  }

  startEdit(): void {
    const field = el("textarea", { class: "edit-field", dir: "auto", "aria-label": "Edit message", rows: String(Math.min(12, this.message.content.split("\n").length + 1)) });
    field.value = this.message.content;
    const end = (): void => {
      this.root.classList.remove("editing");
      this.drawUser();
      this.drawFoot();
      this.foot.querySelector<HTMLElement>("[aria-label='Edit message']")?.focus();
    };
    const send = (): void => {
      const text = field.value.trim();
      if (text || this.message.files?.length) this.actions.edit(this.message, text);
    };
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        end();
      }
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        send();
      }
    });
    this.root.classList.add("editing");
    this.body.replaceChildren(field);
    this.foot.replaceChildren(
      el("button", { type: "button", class: "button primary", onclick: send }, "Send"),
      el("button", { type: "button", class: "button", onclick: end }, "Cancel"));
    field.focus();
  }
}
