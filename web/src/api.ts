// The server that this page came from, and no other.

export class ApiError extends Error {
  constructor(readonly status: number, message: string, readonly code = "") {
    super(message);
  }
}

// There was no answer at all: the server is down, or the network is.
export class Unreachable extends Error {
  constructor() {
    super("The server does not answer.");
  }
}

const KEY = "millrace.key";
let key = sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY) ?? "";
// Asks the reader for a key; resolves to whether one was given. `refused`: the server did not take the last one.
let askForKey: (refused: boolean) => Promise<boolean> = async () => false;
let unreachable: () => void = () => undefined;

export function onKeyNeeded(ask: (refused: boolean) => Promise<boolean>): void {
  askForKey = ask;
}

export function onUnreachable(tell: () => void): void {
  unreachable = tell;
}

export function setKey(value: string, keep: boolean): void {
  key = value;
  sessionStorage.setItem(KEY, value);
  if (keep) localStorage.setItem(KEY, value);
  else localStorage.removeItem(KEY);
}

export async function ask(path: string, init: RequestInit = {}): Promise<Response> {
  for (;;) {
    const headers: Record<string, string> = { ...(init.headers as Record<string, string>) };
    const tried = key;
    if (tried) headers.Authorization = `Bearer ${tried}`;
    let response: Response;
    try {
      response = await fetch(path, { ...init, headers, credentials: "same-origin" });
    } catch (error) {
      if (init.signal?.aborted) throw error;
      unreachable();
      throw new Unreachable();
    }
    if (response.ok) return response;
    const { message, code } = errorOf(await response.text());
    // Another request may have been given a key meanwhile: that one is tried first.
    if (response.status === 401 && (key !== tried || (await askForKey(tried !== "")))) continue;
    throw new ApiError(response.status, message || response.statusText, code);
  }
}

function errorOf(body: string): { message: string; code: string } {
  try {
    const error = (JSON.parse(body) as { error?: { message?: string; code?: unknown } | string }).error;
    if (typeof error === "string") return { message: error, code: "" };
    return { message: error?.message ?? "", code: typeof error?.code === "string" ? error.code : "" };
  } catch {
    return { message: body.slice(0, 300), code: "" };
  }
}

export async function healthy(): Promise<boolean> {
  return fetch("/health", { cache: "no-store" }).then((response) => response.ok, () => false);
}

export interface Model {
  id: string;
  max_model_len?: number;
  meta?: { n_params?: number };
}

export async function models(): Promise<Model[]> {
  return ((await (await ask("/v1/models")).json()) as { data: Model[] }).data;
}

export interface FieldSchema {
  type?: string;
  minimum?: number;
  maximum?: number;
  description?: string;
}

// The numeric fields of a chat request, as the server declares them.
export async function chatFields(): Promise<Record<string, FieldSchema>> {
  const schema = await (await ask("/openapi.json")).json();
  return schema.paths?.["/v1/chat/completions"]?.post?.requestBody?.content?.["application/json"]?.schema?.properties ?? {};
}

export interface Props {
  chat_template?: string;
  default_generation_settings?: { params?: Record<string, number> };
}

export async function props(): Promise<Props> {
  return (await (await ask("/props")).json()) as Props;
}

const postJson = (body: unknown, headers: Record<string, string> = {}): RequestInit => ({
  method: "POST",
  headers: { "Content-Type": "application/json", ...headers },
  body: JSON.stringify(body),
});

// How many tokens the model would read.
export async function countTokens(body: Record<string, unknown>): Promise<number> {
  return ((await (await ask("/v1/chat/completions/input_tokens", postJson(body))).json()) as { input_tokens: number }).input_tokens;
}

export async function countText(content: string): Promise<number> {
  return ((await (await ask("/tokenize", postJson({ content }))).json()) as { tokens: unknown[] }).tokens.length;
}

// Begins an answer whose stream the server keeps under `id`, so that it can be read on.
export async function beginStream(id: string, body: Record<string, unknown>, signal: AbortSignal): Promise<Response> {
  const asked = { ...body, stream: true, stream_options: { include_usage: true, continuous_usage_stats: true } };
  return ask("/v1/chat/completions", { ...postJson(asked, { "X-Conversation-Id": id }), signal });
}

export async function readStreamOn(id: string, from: number, signal: AbortSignal): Promise<Response> {
  return ask(`/v1/stream/${id}?from=${from}`, { signal });
}

// Ends the server's work on it.
export async function endStream(id: string): Promise<void> {
  await ask(`/v1/stream/${id}`, { method: "DELETE" });
}

// Whether the server has the stream, and whether it is complete there.
export async function findStream(id: string): Promise<{ done: boolean } | null> {
  const found = (await (await ask("/v1/streams/lookup", postJson({ conversation_ids: [id] }))).json()) as { is_done: boolean }[];
  return found[0] ? { done: found[0].is_done } : null;
}
