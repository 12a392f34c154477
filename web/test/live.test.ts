// The state of the live view, computed from its feed.
import assert from "node:assert/strict";
import { test } from "node:test";

import { histogram, History, quantile, seconds, type SnapshotJson, type StepJson, type StreamJson } from "../src/live/history";
import { techniques } from "../src/live/techniques";

const stream = (id: string, more: Partial<StreamJson> = {}): StreamJson => ({ id, phase: "running", prompt: 10, computed: 0, cached: 0, generated: 0, blocks: 1, drafted: 0, accepted: 0, preemptions: 0, submitted: 1, admitted: 0, first_token: 0, ...more });
const step = (number: number, began: number, decode: string[], prefill: [string, number][] = []): StepJson =>
  [number, began, 0.01, prefill.reduce((sum, one) => sum + one[1], 0), decode.length, decode.length + prefill.length, 0, 0,
    [...prefill.map(([id, tokens]): [string, number, 1, 0] => [id, tokens, 1, 0]), ...decode.map((id): [string, number, 0, 1] => [id, 1, 0, 1])]];
const snapshot = (now: number, more: Partial<SnapshotJson> = {}): SnapshotJson => ({
  now, running: 0, waiting: 0, streams: [], left_out: 0, ended: [], steps: [], missed: 0,
  blocks: { total: 8, free: 8, cached: 0, tokens: 16, in_cell: 1, cells: [[8, -1, 0, 0]] }, totals: {}, swap_free_tokens: 0, memory_budget: 0, memory: [], ...more,
});

test("the history begins again with another engine, whose clock begins again", () => {
  const history = new History();
  history.add(snapshot(100, { streams: [stream("1", { submitted: 99 })] }));
  history.add(snapshot(2));
  assert.deepEqual(history.lanes, []);
  assert.equal(history.snapshot!.now, 2);
});

test("a stream keeps its lane from submission to its end", () => {
  const history = new History();
  history.add(snapshot(1, { streams: [stream("1", { phase: "waiting" }), stream("2", { phase: "waiting" })] }));
  history.add(snapshot(2, { streams: [stream("2", { admitted: 1.5 })], ended: [stream("1", { admitted: 1.2, first_token: 1.4, ended: 1.9 })] }));
  const [first, second] = history.lanes;
  assert.deepEqual([first!.row, second!.row], [0, 1]);
  assert.equal(first!.ended, 1.9);
  assert.equal(second!.admitted, 1.5);
  assert.notEqual(first!.hue, second!.hue);
  history.add(snapshot(3, { streams: [stream("2"), stream("3", { submitted: 2.9 })] }));
  assert.equal(history.lanes.find((lane) => lane.id === "3")!.row, 0);
  history.add(snapshot(63));
  assert.deepEqual(history.lanes.map((lane) => lane.id), ["2", "3"]);
});

test("latencies: time to first token once per stream, and gaps between a stream's tokens", () => {
  const history = new History();
  history.add(snapshot(2, { streams: [stream("1", { submitted: 1, first_token: 1.5 })], steps: [step(1, 1.49, ["1"]), step(2, 1.6, ["1", "2"]), step(3, 1.8, ["2"])] }));
  history.add(snapshot(3, { streams: [stream("1", { submitted: 1, first_token: 1.5 })], steps: [step(4, 2, ["1"])] }));
  assert.deepEqual(history.ttft, [0.5]);
  assert.deepEqual(history.itl.map((value) => Math.round(value * 100)), [11, 20, 40]);
});

test("rates and the chart count each step once", () => {
  const history = new History();
  history.add(snapshot(10, { steps: [step(1, 9.2, ["1", "2"]), step(2, 9.4, ["1"], [["3", 64]]), step(3, 5, ["1"])] }));
  const rates = history.rates(2);
  assert.equal(rates.decode, 1.5);
  assert.equal(rates.prefill, 32);
  const series = history.series(60);
  assert.equal(series.reduce((sum, one) => sum + one.decode, 0), 4);
  assert.equal(series.at(-1)!.prefill, 64);
});

test("quantiles and histograms", () => {
  assert.ok(Number.isNaN(quantile([], 0.5)));
  assert.equal(quantile([3, 1, 2], 0.5), 2);
  const { counts, from, to } = histogram([0.01, 0.01, 0.02, 0.5], 10);
  assert.equal(counts.reduce((sum, one) => sum + one, 0), 4);
  assert.equal(counts[0], 2);
  assert.equal(counts.at(-1), 1);
  assert.deepEqual([from, to], [0.01, 0.5]);
  assert.equal(histogram([], 4).counts.length, 4);
  assert.equal(seconds(0.0123), "12.3 ms");
});

test("a technique that is off says so and saves nothing", () => {
  const hello = { model: "m", context: 64, each_second: 5, kv_blocks: 8, kv_bytes: 8 * 16 * 100, techniques: [{ family: "policy", name: "fcfs", summary: "in order" }, { family: "kv_format", name: "q8_0", summary: "8.5 bits" }, { family: "drafter", name: "ngram", summary: "drafts from the prompt" }], options: { policy: "fcfs", max_streams: 2, queue: 4, batch_tokens: 32, kv_format: "q8_0", kv_pool: "paged", prefix_cache: false, prefix_evict: "lru", swap_tokens: 0, kv_store: false } };
  const rows = new Map(techniques(hello, snapshot(1, { totals: { steps: 2, prompt_tokens: 5, generated_tokens: 3 } })).map((one) => [one.name, one]));
  assert.equal(rows.get("Prefix cache")!.on, false);
  assert.equal(rows.get("Prefix cache")!.saves, "");
  assert.deepEqual(rows.get("drafter"), { name: "drafter", on: true, setting: "ngram", saves: "drafts from the prompt" });
  assert.deepEqual(rows.get("Swap"), { name: "Swap", on: false, setting: "off", saves: "" });
  assert.equal(rows.get("KV store")!.on, false);
  const swapping = { ...hello, techniques: [{ family: "tier", name: "memory", summary: "host memory" }], options: { ...hello.options, swap_tokens: 256 } };
  const swap = techniques(swapping, snapshot(1, { totals: { swapped_in_tokens: 7 } })).filter((one) => one.name === "Swap");
  assert.deepEqual(swap, [{ name: "Swap", on: true, setting: "256 tokens", saves: "7 tokens swapped in" }]);
  assert.equal(rows.get("KV format")!.saves, "100 B per token, 73 % less than f32");
  assert.match(rows.get("Continuous batching")!.saves, /^4 tokens/);
});
