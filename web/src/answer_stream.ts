// Reads one answer to its end, across lost connections, server restarts and page reloads.
//
//   begin -> events ... lost -> [server back] -> stream still there?  yes: resume after the last byte
//                                                                     no:  repeat the request with the same seed, which
//                                                                          gives the same answer
import * as api from "./api";
import { serverBack } from "./connection";
import { readEvents } from "./sse";
import type { Token, Usage } from "./tree";

const MOST_TRIES = 20; // in a row without an event

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

// An error that the server sent as the last event of a stream.
class StreamError extends api.ApiError {}

export function readChunk(text: string): Delta {
  const chunk = JSON.parse(text) as ChunkJson;
  if (chunk.error) throw new StreamError(500, chunk.error.message ?? "the server ended the answer with an error");
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

export interface AnswerReader {
  take(delta: Delta, at: number): void; // `at`: byte offset in the stream after this event
  began(seed: string): void;            // the seed that reproduces the answer; "": unknown
  again(): void;                        // the answer restarts: discard everything taken so far
}

export interface AnswerRequest {
  id: string;                            // of the stream
  from: number;                          // byte offset to resume at; 0: the beginning
  body: Record<string, unknown> | null;  // null: the stream was started before the page was loaded
}

// "elsewhere": another page took the stream over. Errors: ApiError; AbortError once `signal` is aborted.
export async function readAnswer(request: AnswerRequest, reader: AnswerReader, signal: AbortSignal): Promise<"complete" | "elsewhere"> {
  const { id, body } = request;
  let at = request.from, seed = "", started = body === null, tries = 0;
  for (;;) {
    let broken = false;
    let ended: StreamError | undefined;
    try {
      const response = started ? await api.resumeStream(id, at, signal) : await api.beginStream(id, seed ? { ...body, seed: Number(seed) } : body!, signal);
      started = true;
      seed = response.headers.get("Millrace-Seed") ?? seed;
      reader.began(seed);
      let complete = false;
      await readEvents(response, (event) => {
        if (event.data === "[DONE]") {
          complete = true;
          return false;
        }
        tries = 0;
        if (event.id) at = Number(event.id);
        reader.take(readChunk(event.data), at);
      });
      if (complete) return "complete";
    } catch (error) {
      const lost = started && error instanceof api.ApiError && error.status === 404; // the stream, not the connection
      if (error instanceof StreamError) ended = error;
      else if (signal.aborted || (error instanceof api.ApiError && !lost)) throw error;
      else broken = true; // no response, or the connection was lost
    }
    signal.throwIfAborted();
    if (++tries > MOST_TRIES) throw new api.Unreachable();
    await unlessAborted(serverBack(), signal);
    const stored = await api.findStream(id).catch((error: unknown) => {
      if (error instanceof api.Unreachable) return undefined; // unreachable again
      throw error;
    });
    // If the server ended this reader while the stream goes on, another reader has taken the stream over.
    if (stored && !stored.done && !broken) return "elsewhere";
    if (ended) throw ended;
    if (stored === undefined) continue;
    if (stored) continue;
    if (!body) throw new api.ApiError(404, "The page was closed before this answer was complete, and the server no longer has the rest.");
    if (at > 0 && !seed) throw new api.ApiError(404, "The connection was lost, and the server no longer has the rest of this answer.");
    started = false;
    at = 0;
    reader.again();
  }
}

function unlessAborted(wait: Promise<void>, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason as Error);
    signal.addEventListener("abort", abort, { once: true });
    void wait.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}
