// The conversation: what is shown of its tree, and the answer that streams into it.
import * as api from "./api";
import { app, modelName } from "./app";
import { Composer } from "./composer";
import { el } from "./dom";
import { MessageView } from "./message";
import { add, newConversation, path, place, prompt, turn, type Conversation, type Message, type TextFile } from "./tree";

const FOLLOW = 60; // pixels from the end: nearer than that, the view goes along with the stream

export class Chat {
  readonly root = el("section", { class: "chat", "aria-label": "Conversation" });
  conversation: Conversation = newConversation(app.settings.system);
  private readonly log = el("div", { class: "log", role: "log", "aria-live": "off", "aria-label": "Messages" });
  private readonly scroller = el("div", { class: "scroller", tabindex: "-1" }, this.log);
  readonly composer = new Composer((text, files) => void this.send(text, files), () => this.stop());
  private views: MessageView[] = [];
  private running: AbortController | null = null;
  private follows = true; // the end stays in view while the text grows

  constructor(private readonly changed: (conversation: Conversation) => void) {
    this.root.append(this.scroller, this.composer.root);
    this.scroller.addEventListener("scroll", () => (this.follows = this.fromEnd() < FOLLOW), { passive: true });
    new ResizeObserver(() => {
      if (this.follows) this.toEnd();
    }).observe(this.log);
    this.root.addEventListener("dragover", (event) => {
      if (event.dataTransfer?.types.includes("Files")) event.preventDefault();
    });
    this.root.addEventListener("drop", (event) => {
      event.preventDefault();
      void this.composer.take([...(event.dataTransfer?.files ?? [])]);
    });
  }

  show(conversation: Conversation): void {
    this.stop();
    this.conversation = conversation;
    this.views = [];
    this.draw();
    this.toEnd();
  }

  private fromEnd(): number {
    return this.scroller.scrollHeight - this.scroller.scrollTop - this.scroller.clientHeight;
  }

  private toEnd(): void {
    this.scroller.scrollTop = this.scroller.scrollHeight;
    this.follows = true;
  }

  get working(): boolean {
    return this.running !== null;
  }

  stop(): void {
    this.running?.abort();
  }

  // Messages that stay keep their views.
  draw(): void {
    const shown = path(this.conversation);
    const old = new Map(this.views.map((view) => [view.message, view]));
    this.views = shown.map((message) => {
      const placed = place(this.conversation, message);
      const view = old.get(message);
      if (!view) return new MessageView(message, this, placed);
      view.place(placed);
      return view;
    });
    this.log.replaceChildren(...(shown.length > 0 ? this.views.map((view) => view.root) : [this.empty()]));
    this.root.classList.toggle("is-empty", shown.length === 0);
  }

  private empty(): HTMLElement {
    const plain = app.props.chat_template === "";
    const starts = plain
      ? ["Once upon a time, there was a little fox who", "One day, a girl found a box in the garden. In it", "The old boat did not want to go home, because"]
      : ["Explain how a water mill works.", "Write a limerick about a patient miller.", "What is $\\int_0^1 x^2\\,dx$, step by step?"];
    return el("div", { class: "empty" },
      el("h1", {}, modelName() || "millrace"),
      el("p", {}, plain ? "This model has no chat template: it goes on where the text ends. Give it a beginning." : "Ask something, or begin with one of these."),
      el("div", { class: "starts" }, ...starts.map((text) => el("button", { type: "button", class: "start", onclick: () => void this.send(text, []) }, text))));
  }

  async send(text: string, files: TextFile[]): Promise<void> {
    if (this.running) return;
    const parent = path(this.conversation).at(-1)?.id ?? "";
    const message: Omit<Message, "id" | "created"> = { parent, role: "user", content: text };
    if (files.length > 0) message.files = files;
    await this.answer(add(this.conversation, message));
  }

  // MessageActions
  regenerate(message: Message): void {
    const asked = this.conversation.messages[message.parent];
    if (asked && !this.running) void this.answer(asked);
  }

  edit(message: Message, text: string): void {
    if (this.running) return;
    const other: Omit<Message, "id" | "created"> = { parent: message.parent, role: "user", content: text };
    if (message.files) other.files = message.files;
    void this.answer(add(this.conversation, other));
  }

  turn(message: Message, by: number): void {
    if (this.running || !turn(this.conversation, message, by)) return;
    this.draw();
    this.changed(this.conversation);
    const at = this.conversation.selected[message.parent];
    this.views.find((view) => view.message.id === at)?.root.querySelector<HTMLElement>(`[aria-label='${by < 0 ? "Previous" : "Next"} version']`)?.focus();
  }

  turnLast(by: number): void {
    for (const view of [...this.views].reverse()) {
      if (place(this.conversation, view.message).count > 1) return this.turn(view.message, by);
    }
  }

  regenerateLast(): void {
    const last = path(this.conversation).at(-1);
    if (last?.role === "assistant") this.regenerate(last);
  }

  editLast(): void {
    this.views.filter((view) => view.message.role === "user").at(-1)?.startEdit();
  }

  private async answer(asked: Message): Promise<void> {
    const conversation = this.conversation;
    const { settings } = app;
    const body: Record<string, unknown> = { model: modelName(), messages: prompt(conversation, asked), ...settings.sampling };
    if (settings.logprobs) Object.assign(body, { logprobs: true, top_logprobs: 5 });
    const message = add(conversation, { parent: asked.id, role: "assistant", content: "", model: modelName() });
    const running = new AbortController();
    this.draw();
    const view = this.views.at(-1)!;
    this.running = running;
    this.composer.setWorking(true);
    this.log.setAttribute("aria-busy", "true");
    view.update(true);
    this.toEnd();
    app.say("Answering");
    this.changed(conversation);
    const began = performance.now();
    const drawing = new Drawing(() => view.update(true));
    const spoken = new Spoken();
    try {
      await api.chat(body, running.signal, (delta) => {
        if (message.firstSeconds === undefined && (delta.content || delta.reasoning)) message.firstSeconds = (performance.now() - began) / 1000;
        if (delta.content) message.content += delta.content;
        if (delta.reasoning) message.reasoning = (message.reasoning ?? "") + delta.reasoning;
        if (delta.tokens) (message.tokens ??= []).push(...delta.tokens);
        if (delta.finish) message.finish = delta.finish;
        if (delta.usage) message.usage = delta.usage;
        if (delta.model) message.model = delta.model;
        spoken.take(delta.content ?? "");
        drawing.ask();
      }, (seed) => (message.seed = seed || undefined));
      if (!message.finish) message.finish = "error";
    } catch (error) {
      message.finish = running.signal.aborted ? "stopped" : "error";
      if (!running.signal.aborted) message.error = error instanceof Error ? error.message : String(error);
    }
    drawing.end();
    message.seconds = (performance.now() - began) / 1000;
    this.running = null;
    this.composer.setWorking(false);
    this.log.removeAttribute("aria-busy");
    view.update(false);
    spoken.end(message.finish === "stopped" ? "Stopped" : message.error ?? "");
    conversation.updated = Date.now();
    this.changed(conversation);
  }
}

// At most once a frame.
class Drawing {
  private frame = 0;
  constructor(private readonly draw: () => void) {}
  ask(): void {
    if (this.frame !== 0) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }
  end(): void {
    cancelAnimationFrame(this.frame);
  }
}

// For those who listen: sentence by sentence, not letter by letter.
class Spoken {
  private text = "";
  take(text: string): void {
    this.text += text;
    const end = Math.max(...[". ", "! ", "? ", ".\n", "\n\n"].map((mark) => this.text.lastIndexOf(mark)));
    if (end < 60) return;
    app.say(this.text.slice(0, end + 1));
    this.text = this.text.slice(end + 1);
  }
  end(why: string): void {
    app.say([this.text.trim(), why].filter(Boolean).join(". ") || "Answer finished");
  }
}
