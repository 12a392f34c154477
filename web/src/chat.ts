// The chat: shows the current path of a conversation's tree, and runs streaming answers, including those of conversations
// that are not shown.
import { readAnswer } from "./answer_stream";
import { answerFields } from "./answer_settings";
import * as api from "./api";
import { app, modelName } from "./app";
import { Composer } from "./composer";
import { el, iconButton } from "./dom";
import { copyText, inlineMarkdown } from "./markdown";
import { MessageView } from "./message";
import { firstScreen, REAL_MODEL } from "./starters";
import { byteLength, reason } from "./text";
import { add, firstRead, newConversation, newId, path, place, prompt, promptWith, turn, type Conversation, type Message, type TextFile } from "./tree";

const FOLLOW = 60; // pixels: closer to the end than this, the view follows the stream
const PER_MESSAGE = 16; // tokens that a chat template adds to a message, rounded up
const SAVE_EACH = 1000; // ms between saves while an answer streams, so that a reload resumes from there

// A streaming answer.
interface Run {
  conversation: Conversation;
  message: Message;
  abort: AbortController;
}

export class Chat {
  readonly root = el("section", { class: "chat", "aria-label": "Conversation" });
  conversation: Conversation = newConversation(app.settings.system);
  private readonly log = el("div", { class: "log", role: "log", "aria-live": "off", "aria-label": "Messages" });
  private readonly scroller = el("div", { class: "scroller", tabindex: "-1" }, this.log);
  readonly composer = new Composer({
    send: (text, files) => void this.send(text, files),
    stop: () => this.stop(),
    tooLong: (text, files) => this.tooLong(text, files),
  });
  private views: MessageView[] = [];
  private readonly runs = new Map<string, Run>(); // by conversation
  private follows = true; // scroll along while the text grows

  // `changed`: the conversation must be saved; `listed`: its title or position in the list may have changed.
  constructor(private readonly changed: (conversation: Conversation, listed?: boolean) => void) {
    this.root.append(this.scroller, this.composer.root);
    this.scroller.addEventListener("scroll", () => (this.follows = this.fromEnd() < FOLLOW), { passive: true });
    new ResizeObserver(() => {
      if (this.follows) this.toEnd();
    }).observe(this.log);
    document.addEventListener("modelchange", () => this.composer.checkLength());
    this.root.addEventListener("dragover", (event) => {
      if (event.dataTransfer?.types.includes("Files")) event.preventDefault();
    });
    this.root.addEventListener("drop", (event) => {
      event.preventDefault();
      void this.composer.take([...(event.dataTransfer?.files ?? [])]);
    });
  }

  show(conversation: Conversation): void {
    // A conversation with a streaming answer is in memory, more recent than the stored one.
    this.conversation = this.runs.get(conversation.id)?.conversation ?? conversation;
    this.views = [];
    this.draw();
    this.toEnd();
    this.composer.checkLength();
    const unfinished = [...path(this.conversation)].reverse().find((message) => message.stream);
    if (unfinished && !this.working) void this.read(this.conversation, unfinished, null);
  }

  private fromEnd(): number {
    return this.scroller.scrollHeight - this.scroller.scrollTop - this.scroller.clientHeight;
  }

  private toEnd(): void {
    this.scroller.scrollTop = this.root.classList.contains("is-empty") ? 0 : this.scroller.scrollHeight;
    this.follows = true;
  }

  get working(): boolean {
    return this.runs.has(this.conversation.id);
  }

  // All conversations with a streaming answer.
  get answering(): Conversation[] {
    return [...this.runs.values()].map((run) => run.conversation);
  }

  stop(id = this.conversation.id): void {
    const run = this.runs.get(id);
    if (!run) return;
    run.abort.abort();
    // Cancel explicitly: the server continues a stream that only lost its reader.
    if (run.message.stream) void api.endStream(run.message.stream.id).catch(() => undefined);
  }

  // Messages that remain visible keep their views.
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
    const first = firstRead(this.conversation, shown);
    const parts: HTMLElement[] = this.views.map((view) => view.root);
    this.views.forEach((view, index) => view.root.classList.toggle("left-out", index < first));
    if (first > 0) parts.splice(first, 0, this.cut());
    this.log.replaceChildren(...(shown.length > 0 ? parts : [this.empty()]));
    this.root.classList.toggle("is-empty", shown.length === 0);
    const run = this.runs.get(this.conversation.id);
    if (run) this.views.find((view) => view.message === run.message)?.update(true);
    this.composer.setWorking(run !== undefined);
    this.log.setAttribute("aria-busy", String(run !== undefined));
  }

  // The separator where the model's context starts after earlier messages were omitted.
  private cut(): HTMLElement {
    return el("div", { class: "cut", role: "separator" }, el("span", {}, "The model's context starts here"),
      el("button", { type: "button", class: "quiet", onclick: () => {
        delete this.conversation.since;
        this.draw();
        this.changed(this.conversation);
      } }, "Include all messages"));
  }

  private empty(): HTMLElement {
    const { about, starters, demonstration } = firstScreen(app.models.find((one) => one.id === modelName()), app.props.chat_template);
    return el("div", { class: "empty" },
      el("h1", {}, modelName() || "millrace"),
      el("p", {}, about),
      el("div", { class: "starts" }, ...starters.map(({ shown, sent }) => el("button", { type: "button", class: "start", onclick: () => void this.send(sent, []) }, el("span", {}, ...inlineMarkdown(shown))))),
      demonstration && realModel());
  }

  async send(text: string, files: TextFile[]): Promise<void> {
    if (this.working) return;
    const parent = path(this.conversation).at(-1)?.id ?? "";
    const message: Omit<Message, "id" | "created"> = { parent, role: "user", content: text };
    if (files.length > 0) message.files = files;
    await this.answer(add(this.conversation, message));
  }

  // MessageActions
  regenerate(message: Message): void {
    const question = this.conversation.messages[message.parent];
    if (question && !this.working) void this.answer(question);
  }

  edit(message: Message, text: string): void {
    if (this.working) return;
    const other: Omit<Message, "id" | "created"> = { parent: message.parent, role: "user", content: text };
    if (message.files) other.files = message.files;
    void this.answer(add(this.conversation, other));
  }

  turn(message: Message, by: number): void {
    if (this.working || !turn(this.conversation, message, by)) return;
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

  // Omits as few of the oldest messages as necessary for the rest to fit, and retries.
  async trim(message: Message): Promise<void> {
    const conversation = this.conversation;
    const question = conversation.messages[message.parent];
    if (!question || this.working) return;
    const before = conversation.since;
    const shown = path(conversation);
    const last = shown.indexOf(question);
    const starts = shown.slice(firstRead(conversation, shown) + 1, last + 1).filter((one) => one.role === "user");
    const room = this.roomForPrompt();
    const fits = async (from: Message): Promise<boolean> => {
      conversation.since = from.id;
      return (await api.countTokens({ model: modelName(), messages: prompt(conversation, question) })) <= room;
    };
    try {
      let low = 0, high = starts.length; // starts before `low` do not fit; starts from `high` on fit, or do not exist
      while (low < high) {
        const middle = (low + high) >> 1;
        if (await fits(starts[middle]!)) high = middle;
        else low = middle + 1;
      }
      const first = starts[high];
      if (first) {
        conversation.since = first.id;
        delete conversation.messages[message.id]; // it only contains the error
        return await this.answer(question);
      }
      app.notice("The last message alone is too long for the model. Shorten it.");
      this.views.find((view) => view.message === question)?.startEdit();
    } catch (error) {
      app.notice(reason(error));
    }
    if (before === undefined) delete conversation.since;
    else conversation.since = before;
  }

  // Asks the server for a count only if the prompt could be too long: a token has at least one byte.
  private async tooLong(text: string, files: TextFile[]): Promise<string> {
    const conversation = this.conversation, model = app.models.find((one) => one.id === modelName());
    const context = model?.max_model_len ?? 0;
    const asked: Message = { id: "", parent: path(conversation).at(-1)?.id ?? "", role: "user", content: text, created: 0, files };
    const messages = promptWith(conversation, asked);
    if (context === 0 || messages.reduce((sum, one) => sum + byteLength(one.content), 0) + PER_MESSAGE * messages.length < context) return "";
    try {
      const tokens = await api.countTokens({ model: modelName(), messages });
      if (tokens < context) return "";
      const alone = messages.length === 1 || (await api.countTokens({ model: modelName(), messages: messages.slice(-1) })) >= context;
      const advice = alone ? "Shorten it." : "Sending it offers to leave out the oldest messages.";
      return `Too long: ${alone && messages.length === 1 ? "the message has" : "with the conversation before it, the message has"} ${tokens.toLocaleString("en")} tokens, and ${modelName()} reads ${context.toLocaleString("en")}. ${advice}`;
    } catch {
      return ""; // the answer to the message will say what is wrong
    }
  }

  // Reserves a quarter of the context for the answer, or max_tokens if that is less.
  private roomForPrompt(): number {
    const context = app.models.find((one) => one.id === modelName())?.max_model_len ?? 0;
    return context - Math.max(1, Math.min(app.settings.sampling.max_tokens ?? Infinity, Math.floor(context / 4)));
  }

  // Sends the message in a new conversation.
  async askInNewConversation(message: Message): Promise<void> {
    const question = this.conversation.messages[message.parent];
    if (!question || this.working) return;
    const fresh = newConversation(this.conversation.system);
    this.show(fresh);
    await this.send(question.content, question.files ?? []);
  }

  private async answer(question: Message): Promise<void> {
    const conversation = this.conversation;
    const { settings } = app;
    let fields: Record<string, unknown> = {};
    try {
      fields = answerFields(settings);
    } catch (error) {
      const message = add(conversation, { parent: question.id, role: "assistant", content: "", model: modelName(), finish: "not_sent", error: reason(error) });
      this.draw();
      this.viewOf(message)?.update(false);
      return this.changed(conversation);
    }
    const body: Record<string, unknown> = { model: modelName(), messages: prompt(conversation, question), ...settings.sampling, ...fields };
    if (settings.logprobs) Object.assign(body, { logprobs: true, top_logprobs: 5 });
    const message = add(conversation, { parent: question.id, role: "assistant", content: "", model: modelName(), stream: { id: newId() + newId(), at: 0 } });
    await this.read(conversation, message, body);
  }

  // Reads the message's stream to its end. `body` null: the stream was started before the page was loaded.
  private async read(conversation: Conversation, message: Message, body: Record<string, unknown> | null): Promise<void> {
    const run: Run = { conversation, message, abort: new AbortController() };
    this.runs.set(conversation.id, run);
    if (this.conversation === conversation) {
      this.draw();
      this.toEnd();
    }
    app.say("Answering");
    this.changed(conversation);
    const began = performance.now() - (message.seconds ?? 0) * 1000;
    const drawing = new Drawing(() => this.viewOf(message)?.update(true));
    const spoken = new Spoken();
    const note = (): void => void (message.seconds = (performance.now() - began) / 1000);
    const saving = setInterval(() => {
      note();
      this.changed(conversation, false);
    }, SAVE_EACH);
    const { id, at } = message.stream!;
    let ended: "complete" | "elsewhere" = "complete";
    try {
      ended = await readAnswer({ id, from: at, body }, {
        take: (delta, reached) => {
          if (message.firstSeconds === undefined && (delta.content || delta.reasoning)) message.firstSeconds = (performance.now() - began) / 1000;
          if (delta.content) message.content += delta.content;
          if (delta.reasoning) message.reasoning = (message.reasoning ?? "") + delta.reasoning;
          if (delta.tokens) (message.tokens ??= []).push(...delta.tokens);
          if (delta.finish) message.finish = delta.finish;
          if (delta.usage) message.usage = delta.usage;
          if (delta.model) message.model = delta.model;
          message.stream = { id, at: reached };
          spoken.take(delta.content ?? "");
          drawing.ask();
        },
        began: (seed) => void (message.seed = seed || message.seed),
        again: () => {
          message.content = "";
          for (const part of ["reasoning", "tokens", "finish", "usage", "firstSeconds"] as const) delete message[part];
        },
      }, run.abort.signal);
      if (ended === "elsewhere") message.finish = "elsewhere";
      else if (!message.finish) message.finish = "error";
    } catch (error) {
      const tooLong = error instanceof api.ApiError && error.code === "context_length_exceeded";
      message.finish = run.abort.signal.aborted ? "stopped" : tooLong ? "too_long" : "error";
      if (!run.abort.signal.aborted) message.error = reason(error);
    }
    clearInterval(saving);
    drawing.end();
    note();
    delete message.stream;
    this.runs.delete(conversation.id);
    if (this.conversation === conversation) {
      this.draw();
      this.viewOf(message)?.update(false);
      spoken.end(message.finish === "stopped" ? "Stopped" : message.error ?? "");
    }
    conversation.updated = Date.now();
    if (ended !== "elsewhere") this.changed(conversation); // otherwise the other page saves it
  }

  private viewOf(message: Message): MessageView | undefined {
    return this.views.find((view) => view.message === message);
  }
}

// Draws at most once per frame.
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

// Announces the text to screen readers sentence by sentence.
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

// The command that serves a model of practical use.
function realModel(): HTMLElement {
  const copy = iconButton("copy", "Copy command", () => void copyText(REAL_MODEL, copy));
  return el("p", { class: "real-model" }, "For a real model, ", el("a", { href: "#models" }, "download one"), ", or run", el("br"), el("code", {}, REAL_MODEL), copy);
}
