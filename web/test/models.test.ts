// The models view, without a browser.
import assert from "node:assert/strict";
import { test } from "node:test";

import { LineParser } from "../src/lines";
import { amount, listModels, memoryOf, tooLarge } from "../src/models/list";

const models = {
  data: [
    { id: "small", status: { value: "loaded" }, stored: false, max_model_len: 2048, meta: { n_params: 4e6, size: 4e6 } },
    { id: "large", status: { value: "unloaded", failed: true, error: "not enough memory" }, stored: true },
  ],
  memory: { total: 16e9, available: 4e9, resident: 1e9, budget: 0 },
};
const tags = { models: [{ name: "small", size: 4.4e6, details: { family: "llama", parameter_size: "4.1M", quantization_level: "Q8_0" } }, { name: "large", size: 5e9 }] };

test("models are merged from the three lists", () => {
  const now = Date.parse("2026-01-01T00:00:00Z");
  const [small, large] = listModels(models, tags, { models: [{ name: "small", expires_at: "2026-01-01T00:05:00Z" }] }, now);
  assert.deepEqual(small, { name: "small", state: "loaded", error: "", stored: false, bytes: 4.4e6, facts: ["llama", "4.1M parameters", "Q8_0", "context 2,048"], expires: now + 300_000 });
  assert.deepEqual(large, { name: "large", state: "unloaded", error: "not enough memory", stored: true, bytes: 5e9, facts: [], expires: 0 });
  assert.equal(listModels(models, tags, { models: [{ name: "small", expires_at: "2318-09-21T09:40:48Z" }] }, now)[0]!.expires, 0);
});

test("a model's size is compared with the memory it would be loaded into", () => {
  const [small, large] = listModels(models, tags, { models: [] });
  const memory = memoryOf(models)!;
  assert.deepEqual(memory, { bytes: 16e9, available: 4e9, used: 1e9, budget: false });
  assert.equal(tooLarge(small!, memory), "");
  assert.match(tooLarge(large!, memory), /free now/);
  assert.match(tooLarge(large!, { ...memory, bytes: 3e9 }), /this machine/);
  assert.match(tooLarge(large!, memoryOf({ ...models, memory: { ...models.memory, budget: 2e9 } })), /budget/);
  assert.equal(tooLarge(large!, null), "");
  assert.equal(memoryOf({ data: [] }), null);
});

test("amounts", () => {
  assert.deepEqual([amount(4.4e6), amount(639e6), amount(5.03e9), amount(16e9), amount(900)], ["4.4 MB", "639 MB", "5.0 GB", "16 GB", "1 kB"]);
});

test("lines of JSON are parsed from chunks of any size", () => {
  const source = '{"status":"pulling"}\n{"total":3,"completed":1}\n\n{"status":"success"}\n';
  for (let size = 1; size <= source.length; ++size) {
    const parser = new LineParser(), lines: unknown[] = [];
    for (let at = 0; at < source.length; at += size) lines.push(...parser.feed(source.slice(at, at + size)));
    assert.deepEqual(lines, [{ status: "pulling" }, { total: 3, completed: 1 }, { status: "success" }], `pieces of ${size}`);
  }
});
