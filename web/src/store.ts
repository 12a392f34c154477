// Conversations (bounded) and settings in the browser's storage. Nothing is sent to the server.
import { find } from "./search";
import type { Conversation } from "./tree";

export interface Listed {
  id: string;
  title: string;
  updated: number;
  size: number; // characters, approximate
}

export interface Found extends Listed {
  around: string; // "": only the title matches
}

export const MOST_CONVERSATIONS = 500;
export const MOST_SIZE = 64_000_000;

let database: Promise<IDBDatabase> | null = null;

const done = <T>(request: IDBRequest<T>): Promise<T> =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

function open(): Promise<IDBDatabase> {
  database ??= new Promise((resolve, reject) => {
    const request = indexedDB.open("millrace", 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("conversations", { keyPath: "id" });
      request.result.createObjectStore("list", { keyPath: "id" });
    };
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  return database;
}

async function stores(mode: IDBTransactionMode): Promise<{ bodies: IDBObjectStore; list: IDBObjectStore; over: Promise<void> }> {
  const transaction = (await open()).transaction(["conversations", "list"], mode);
  const over = new Promise<void>((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onabort = transaction.onerror = () => reject(transaction.error);
  });
  return { bodies: transaction.objectStore("conversations"), list: transaction.objectStore("list"), over };
}

// Most recent first.
export async function list(): Promise<Listed[]> {
  const all = (await done((await stores("readonly")).list.getAll())) as Listed[];
  return all.sort((a, b) => b.updated - a.updated);
}

export async function load(id: string): Promise<Conversation | undefined> {
  return done((await stores("readonly")).bodies.get(id)) as Promise<Conversation | undefined>;
}

export async function save(conversation: Conversation): Promise<void> {
  const { bodies, list: entries, over } = await stores("readwrite");
  bodies.put(conversation);
  entries.put({ id: conversation.id, title: conversation.title, updated: conversation.updated, size: JSON.stringify(conversation).length } satisfies Listed);
  await over;
}

export async function remove(id: string): Promise<void> {
  const { bodies, list: entries, over } = await stores("readwrite");
  bodies.delete(id);
  entries.delete(id);
  await over;
}

// The oldest entries, whose removal keeps the rest within the bounds.
export function surplus(all: Listed[], most = MOST_CONVERSATIONS, size = MOST_SIZE): Listed[] {
  let sum = 0;
  return all.filter((one, index) => {
    sum += one.size;
    return index > 0 && (index >= most || sum > size);
  });
}

// The conversations whose title or messages contain all words of the query, most recent first, with the text around the
// first word. Stops early, with no results, once `signal` is aborted.
export async function search(query: string, signal: AbortSignal): Promise<Found[]> {
  const entries = await list();
  const out: Found[] = [];
  for (const entry of entries) {
    const conversation = await load(entry.id);
    if (signal.aborted) return [];
    const around = conversation && find(conversation, query);
    if (around !== undefined) out.push({ ...entry, around });
  }
  return out;
}

export async function exportAll(): Promise<string> {
  const all = (await done((await stores("readonly")).bodies.getAll())) as Conversation[];
  return JSON.stringify({ format: "millrace-conversations", version: 1, conversations: all }, null, 1);
}

export interface Settings {
  theme: "system" | "light" | "dark";
  model: string;
  logprobs: boolean;
  system: string; // of new conversations
  sampling: Record<string, number>; // absent: the server's default
  stop: string;   // strings that end an answer, one a line
  schema: string; // JSON Schema of answers; "": none
}

const defaults: Settings = { theme: "system", model: "", logprobs: false, system: "", sampling: {}, stop: "", schema: "" };

export function loadSettings(): Settings {
  try {
    const stored = JSON.parse(localStorage.getItem("millrace.settings") ?? "{}") as Partial<Settings>;
    return { ...defaults, ...stored, sampling: { ...stored.sampling } };
  } catch {
    return { ...defaults, sampling: {} };
  }
}

export function saveSettings(settings: Settings): void {
  try {
    localStorage.setItem("millrace.settings", JSON.stringify(settings));
  } catch {
    // Private browsing: they last as long as the page.
  }
}
