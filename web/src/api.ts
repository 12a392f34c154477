// Client of the server that served this page. No other host is contacted.

export class ApiError extends Error {
  constructor(readonly status: number, message: string, readonly code = "") {
    super(message);
  }
}

// No response at all: the server or the network is down.
export class Unreachable extends Error {
  constructor() {
    super("The server is not responding.");
  }
}

const KEY = "millrace.key";
let key = sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY) ?? "";
// Asks the user for a key; resolves to whether one was entered. `refused`: the server rejected the last one.
let askForKey: (refused: boolean) => Promise<boolean> = async () => false;
let unreachable: () => void = () => undefined;

export function onKeyNeeded(ask: (refused: boolean) => Promise<boolean>): void {
  askForKey = ask;
}

export function onUnreachable(report: () => void): void {
  unreachable = report;
}

export function setKey(value: string, keep: boolean): void {
  key = value;
  sessionStorage.setItem(KEY, value);
  if (keep) localStorage.setItem(KEY, value);
  else localStorage.removeItem(KEY);
}

// The server's address of a path: relative to the page's, because a proxy may publish both under a path.
export function own(path: string): string {
  if (typeof document === "undefined") return path;  // unit tests
  return new URL(path.replace(/^\//, ""), document.baseURI.replace(/[?#].*$/, "")).href;
}

export async function ask(path: string, init: RequestInit = {}): Promise<Response> {
  for (;;) {
    const headers: Record<string, string> = { ...(init.headers as Record<string, string>) };
    const tried = key;
    if (tried) headers.Authorization = `Bearer ${tried}`;
    let response: Response;
    try {
      response = await fetch(own(path), { ...init, headers, credentials: "same-origin" });
    } catch (error) {
      if (init.signal?.aborted) throw error;
      unreachable();
      throw new Unreachable();
    }
    if (response.ok) return response;
    const { message, code } = errorOf(await response.text());
    // Another request may have obtained a key meanwhile: try that one first.
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
  return fetch(own("/health"), { cache: "no-store" }).then((response) => response.ok, () => false);
}

export interface Model {
  id: string;
  status?: { value: string };
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

// Facts of a loaded model; a request for another one would load it.
export async function props(model: string): Promise<Props> {
  return (await (await ask(`/props?model=${encodeURIComponent(model)}`)).json()) as Props;
}

// A POST request of JSON.
export const postJson = (body: unknown, headers: Record<string, string> = {}): RequestInit => ({
  method: "POST",
  headers: { "Content-Type": "application/json", ...headers },
  body: JSON.stringify(body),
});

// Number of prompt tokens of this chat request.
export async function countTokens(body: Record<string, unknown>): Promise<number> {
  return ((await (await ask("/v1/chat/completions/input_tokens", postJson(body))).json()) as { input_tokens: number }).input_tokens;
}

// Number of tokens of a text for a model.
export async function countText(model: string, content: string): Promise<number> {
  return ((await (await ask("/tokenize", postJson({ model, content }))).json()) as { tokens: unknown[] }).tokens.length;
}

// Starts an answer whose stream the server stores under `id`, so that it can be resumed.
export async function beginStream(id: string, body: Record<string, unknown>, signal: AbortSignal): Promise<Response> {
  const request = { ...body, stream: true, stream_options: { include_usage: true, continuous_usage_stats: true } };
  return ask("/v1/chat/completions", { ...postJson(request, { "X-Conversation-Id": id }), signal });
}

export async function resumeStream(id: string, from: number, signal: AbortSignal): Promise<Response> {
  return ask(`/v1/stream/${id}?from=${from}`, { signal });
}

// Cancels the stream on the server.
export async function endStream(id: string): Promise<void> {
  await ask(`/v1/stream/${id}`, { method: "DELETE" });
}

// Whether the server has the stream, and whether it is complete there.
export async function findStream(id: string): Promise<{ done: boolean } | null> {
  const found = (await (await ask("/v1/streams/lookup", postJson({ conversation_ids: [id] }))).json()) as { is_done: boolean }[];
  return found[0] ? { done: found[0].is_done } : null;
}
