// The server that this page came from, and no other.
import { readEvents } from "./sse";
import type { Token, Usage } from "./tree";

export class ApiError extends Error {
  constructor(readonly status: number, message: string) {
    super(message);
  }
}

const KEY = "millrace.key";
let key = sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY) ?? "";
// Asks the reader for a key; resolves to whether one was given.
let askForKey: () => Promise<boolean> = async () => false;

export function onKeyNeeded(ask: () => Promise<boolean>): void {
  askForKey = ask;
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
    if (key) headers.Authorization = `Bearer ${key}`;
    const response = await fetch(path, { ...init, headers, credentials: "same-origin" });
    if (response.ok) return response;
    if (response.status === 401 && (await askForKey())) continue;
    throw new ApiError(response.status, messageOf(await response.text()) || response.statusText);
  }
}

function messageOf(body: string): string {
  try {
    const error = (JSON.parse(body) as { error?: { message?: string } | string }).error;
    return typeof error === "string" ? error : (error?.message ?? "");
  } catch {
    return body.slice(0, 300);
  }
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

export interface Delta {
  content?: string;
  reasoning?: string;
  tokens?: Token[];
  finish?: string;
  usage?: Usage;
  model?: string;
}

interface LogprobJson {
  token: string;
  logprob: number;
  bytes?: number[] | null;
  top_logprobs?: LogprobJson[];
}

interface ChunkJson {
  error?: { message?: string };
  model?: string;
  choices?: {
    index?: number;
    delta?: { content?: string | null; reasoning_content?: string | null; reasoning?: string | null };
    logprobs?: { content?: LogprobJson[] | null } | null;
    finish_reason?: string | null;
  }[];
  usage?: { prompt_tokens: number; completion_tokens: number; prompt_tokens_details?: { cached_tokens?: number } | null } | null;
}

export function readChunk(text: string): Delta {
  const chunk = JSON.parse(text) as ChunkJson;
  if (chunk.error) throw new ApiError(500, chunk.error.message ?? "the server ended the answer with an error");
  const out: Delta = { model: chunk.model };
  const choice = chunk.choices?.find((one) => (one.index ?? 0) === 0);
  if (choice?.delta?.content) out.content = choice.delta.content;
  const reasoning = choice?.delta?.reasoning_content ?? choice?.delta?.reasoning;
  if (reasoning) out.reasoning = reasoning;
  if (choice?.logprobs?.content) {
    out.tokens = choice.logprobs.content.map((one): Token => [one.token, one.logprob, (one.top_logprobs ?? []).map((top): [string, number] => [top.token, top.logprob])]);
  }
  if (choice?.finish_reason) out.finish = choice.finish_reason;
  if (chunk.usage) {
    out.usage = { prompt: chunk.usage.prompt_tokens, generated: chunk.usage.completion_tokens, cached: chunk.usage.prompt_tokens_details?.cached_tokens ?? 0 };
  }
  return out;
}

// Streams one answer. Returns the seed that repeats it, where the server tells.
export async function chat(body: Record<string, unknown>, signal: AbortSignal, take: (delta: Delta) => void, began: (seed: string) => void): Promise<void> {
  const response = await ask("/v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  began(response.headers.get("Millrace-Seed") ?? "");
  await readEvents(response, ({ data }) => {
    if (data === "[DONE]") return false;
    take(readChunk(data));
  });
}
