// Reading an answer across broken connections: the requests sent, and the text received.
import assert from "node:assert/strict";
import { test } from "node:test";

const storage = { getItem: () => null, setItem: () => undefined, removeItem: () => undefined };
Object.assign(globalThis, { sessionStorage: storage, localStorage: storage });

type Reply = { events?: string[]; status?: number; json?: unknown; breaks?: boolean; away?: boolean; seed?: string };

// Answers each request with the next of `replies`, whose pattern must match the path.
function server(replies: [RegExp, Reply][]): { requests: { url: string; body: Record<string, unknown> | null }[] } {
  const requests: { url: string; body: Record<string, unknown> | null }[] = [];
  globalThis.fetch = (async (url: string, init?: RequestInit) => {
    if (url === "/health") return new Response("{}");
    const next = replies.shift();
    assert.ok(next, `unexpected request: ${url}`);
    const [path, reply] = next;
    assert.match(url, path);
    requests.push({ url, body: init?.body ? (JSON.parse(init.body as string) as Record<string, unknown>) : null });
    if (reply.away) throw new TypeError("Failed to fetch");
    if (reply.json !== undefined) return new Response(JSON.stringify(reply.json), { status: reply.status ?? 200 });
    const bytes = (reply.events ?? []).map((event) => new TextEncoder().encode(event));
    const body = new ReadableStream<Uint8Array>({
      pull(controller) {
        const one = bytes.shift();
        if (one) controller.enqueue(one);
        else if (reply.breaks) controller.error(new TypeError("network error"));
        else controller.close();
      },
    });
    return new Response(body, { status: reply.status ?? 200, headers: { "Millrace-Seed": reply.seed ?? "7" } });
  }) as typeof fetch;
  return { requests };
}

const piece = (id: number, content: string): string => `id: ${id}\ndata: ${JSON.stringify({ choices: [{ index: 0, delta: { content } }] })}\n\n`;
const END = "data: [DONE]\n\n";
const BEGIN = /^\/v1\/chat\/completions$/, LOOKUP = /^\/v1\/streams\/lookup$/;

async function read(from: number, body: Record<string, unknown> | null, before = ""): Promise<{ text: string; ended: string }> {
  const { readAnswer } = await import("../src/answer_stream");
  const { watchConnection } = await import("../src/connection");
  watchConnection(() => undefined);
  let text = before;
  const ended = await readAnswer({ id: "s", from, body }, { take: (delta) => void (text += delta.content ?? ""), began: () => undefined, again: () => void (text = "") }, new AbortController().signal);
  return { text, ended };
}

test("an undisturbed answer is one request", async () => {
  const { requests } = server([[BEGIN, { events: [piece(10, "a"), piece(20, "b"), END] }]]);
  assert.deepEqual(await read(0, { model: "m" }), { text: "ab", ended: "complete" });
  assert.equal(requests[0]!.body!.stream, true);
});

test("a lost connection is resumed after the last byte", async () => {
  server([[BEGIN, { events: [piece(10, "a"), piece(20, "b")], breaks: true }], [LOOKUP, { json: [{ is_done: false }] }], [/stream\/s\?from=20$/, { events: [piece(30, "c"), END] }]]);
  assert.deepEqual(await read(0, {}), { text: "abc", ended: "complete" });
});

test("a reloaded page resumes the stream", async () => {
  server([[/stream\/s\?from=20$/, { events: [piece(30, "c"), END] }]]);
  assert.deepEqual(await read(20, null, "ab"), { text: "abc", ended: "complete" });
});

test("if the server lost the stream, the request is repeated with the reported seed", async () => {
  const { requests } = server([[BEGIN, { events: [piece(10, "a")], breaks: true, seed: "9007199254740991" }], [LOOKUP, { json: [] }], [BEGIN, { events: [piece(10, "a"), piece(20, "b"), END] }]]);
  assert.deepEqual(await read(0, {}), { text: "ab", ended: "complete" });
  assert.equal(requests[0]!.body!.seed, undefined);
  assert.equal(requests[2]!.body!.seed, 9007199254740991);
});

test("an unreachable server is waited for, then the request is repeated", async () => {
  server([[BEGIN, { away: true }], [LOOKUP, { json: [] }], [BEGIN, { events: [piece(10, "a"), END] }]]);
  assert.deepEqual(await read(0, {}), { text: "a", ended: "complete" });
});

test("a stream that ends without [DONE] was taken over", async () => {
  server([[BEGIN, { events: [piece(10, "a")] }], [LOOKUP, { json: [{ is_done: false }] }]]);
  assert.deepEqual(await read(0, {}), { text: "a", ended: "elsewhere" });
});

test("an answer whose rest is lost is an error", async () => {
  server([[/stream\/s/, { status: 404, json: { error: { message: "there is no stream" } } }], [LOOKUP, { json: [] }]]);
  await assert.rejects(read(20, null), /no longer has the rest/);
});

test("a refused request is not retried", async () => {
  server([[BEGIN, { status: 400, json: { error: { message: "too long", code: "context_length_exceeded" } } }]]);
  await assert.rejects(read(0, {}), { status: 400, code: "context_length_exceeded" });
});
