// A conversation as a tree: regenerating an answer or editing a message adds a sibling, so that no version is lost.
//
//   (root) - Hello - Hi there!                     the visible path follows the selected child of each message
//                  \ Good day. - And now? - ...
//          \ Hello again - ...

export type Role = "user" | "assistant";

export interface TextFile {
  name: string;
  text: string;
}

// Text, log-probability, and the most likely alternatives.
export type Token = [string, number, [string, number][]];

export interface Usage {
  prompt: number;
  cached: number;
  generated: number;
}

export interface Message {
  id: string;
  parent: string; // "": the root
  role: Role;
  content: string;
  created: number;
  reasoning?: string;
  files?: TextFile[];
  tokens?: Token[];
  usage?: Usage;
  model?: string;
  seed?: string;
  finish?: string; // stop, length, stopped (by the user), too_long, elsewhere (another tab reads it), error
  error?: string;
  stream?: { id: string; at: number }; // while incomplete: the server's stream, and the byte offset to resume at
  firstSeconds?: number;
  seconds?: number;
}

export interface Conversation {
  id: string;
  title: string;
  created: number;
  updated: number;
  system: string;
  messages: Record<string, Message>;
  selected: Record<string, string>; // parent id -> id of the visible child
  since?: string; // the first message in the prompt; earlier ones are omitted
}

export const newId = (): string => Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, "0")).join("");

export function newConversation(system = ""): Conversation {
  const now = Date.now();
  return { id: newId(), title: "", created: now, updated: now, system, messages: {}, selected: {} };
}

export function children(conversation: Conversation, parent: string): Message[] {
  return Object.values(conversation.messages).filter((message) => message.parent === parent).sort((a, b) => a.created - b.created || (a.id < b.id ? -1 : 1));
}

// The visible messages, in order.
export function path(conversation: Conversation): Message[] {
  const out: Message[] = [];
  for (let parent = ""; ; ) {
    const next = conversation.messages[conversation.selected[parent] ?? ""] ?? children(conversation, parent).at(-1);
    if (!next || next.parent !== parent || out.length > 10000) return out;
    out.push(next);
    parent = next.id;
  }
}

export function add(conversation: Conversation, message: Omit<Message, "id" | "created">): Message {
  const latest = children(conversation, message.parent).at(-1)?.created ?? 0;
  const full: Message = { ...message, id: newId(), created: Math.max(Date.now(), latest + 1) };
  conversation.messages[full.id] = full;
  conversation.selected[full.parent] = full.id;
  conversation.updated = Date.now();
  if (!conversation.title && full.role === "user") conversation.title = titleOf(full);
  return full;
}

export const titleOf = (message: Message): string => (message.content || message.files?.[0]?.name || "").replace(/\s+/g, " ").trim().slice(0, 60);

// Index among the siblings, from 0, and their number.
export function place(conversation: Conversation, message: Message): { index: number; count: number } {
  const siblings = children(conversation, message.parent);
  return { index: siblings.findIndex((one) => one.id === message.id), count: siblings.length };
}

// Selects the sibling `by` positions away; false if there is none.
export function turn(conversation: Conversation, message: Message, by: number): boolean {
  const siblings = children(conversation, message.parent);
  const next = siblings[siblings.findIndex((one) => one.id === message.id) + by];
  if (next) conversation.selected[message.parent] = next.id;
  return next !== undefined;
}

// The message as sent to the model: attached files first, each in a fence longer than any fence in it.
export function said(message: Message): string {
  const files = (message.files ?? []).map((file) => {
    const longest = Math.max(2, ...(file.text.match(/`{3,}/g) ?? []).map((run) => run.length));
    const fence = "`".repeat(longest + 1);
    return `File ${file.name}:\n${fence}\n${file.text}\n${fence}\n\n`;
  });
  return files.join("") + message.content;
}

// Index of the first visible message in the prompt.
export const firstRead = (conversation: Conversation, shown: Message[]): number => Math.max(0, shown.findIndex((message) => message.id === conversation.since));

export function prompt(conversation: Conversation, until: Message): { role: string; content: string }[] {
  const out: { role: string; content: string }[] = conversation.system.trim() ? [{ role: "system", content: conversation.system }] : [];
  const shown = path(conversation);
  const first = firstRead(conversation, shown);
  for (const message of first > shown.indexOf(until) ? shown : shown.slice(first)) {
    out.push({ role: message.role, content: said(message) });
    if (message.id === until.id) break;
  }
  return out;
}

// The prompt of a message that is not in the conversation yet and would follow its last one.
export function promptWith(conversation: Conversation, message: Message): { role: string; content: string }[] {
  const last = path(conversation).at(-1);
  const before = last ? prompt(conversation, last) : conversation.system.trim() ? [{ role: "system", content: conversation.system }] : [];
  return [...before, { role: message.role, content: said(message) }];
}

// Validates a conversation from an untrusted file. Null if it is not one; unreachable messages are dropped.
export function readConversation(value: unknown): Conversation | null {
  const from = value as Partial<Conversation> | null;
  if (typeof from !== "object" || from === null || typeof from.messages !== "object" || from.messages === null) return null;
  const text = (one: unknown, most = 1e7): string => (typeof one === "string" ? one.slice(0, most) : "");
  const number = (one: unknown): number | undefined => (typeof one === "number" && Number.isFinite(one) ? one : undefined);
  const out = newConversation(text(from.system));
  out.title = text(from.title, 200);
  out.created = number(from.created) ?? out.created;
  for (const one of Object.values(from.messages) as Partial<Message>[]) {
    if (typeof one !== "object" || one === null || !text(one.id) || (one.role !== "user" && one.role !== "assistant")) continue;
    const message: Message = { id: text(one.id, 64), parent: text(one.parent, 64), role: one.role, content: text(one.content), created: number(one.created) ?? 0 };
    if (text(one.reasoning)) message.reasoning = text(one.reasoning);
    if (Array.isArray(one.files)) message.files = one.files.slice(0, 32).map((file) => ({ name: text(file?.name, 200), text: text(file?.text) }));
    if (text(one.model)) message.model = text(one.model, 200);
    if (text(one.seed)) message.seed = text(one.seed, 24);
    if (text(one.finish)) message.finish = text(one.finish, 24);
    Object.defineProperty(out.messages, message.id, { value: message, enumerable: true, writable: true, configurable: true });
  }
  // Keep only messages reachable from the root, which excludes cycles.
  const reached = new Set<string>();
  for (let open = [""]; open.length > 0; ) {
    const next = Object.values(out.messages).filter((one) => open.includes(one.parent) && !reached.has(one.id));
    for (const one of next) reached.add(one.id);
    open = next.map((one) => one.id);
  }
  for (const id of Object.keys(out.messages)) if (!reached.has(id)) delete out.messages[id];
  for (const [parent, child] of Object.entries(from.selected ?? {})) {
    if (Object.hasOwn(out.messages, String(child)) && out.messages[String(child)]!.parent === parent) out.selected[parent] = String(child);
  }
  return Object.keys(out.messages).length > 0 ? out : null;
}
