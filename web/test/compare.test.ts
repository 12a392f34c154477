// Results of `millrace compare`, as the page reads them.
import assert from "node:assert/strict";
import { test } from "node:test";

import { choices, dots, nearest, readResult, shown } from "../src/compare/result";

const config = (name: string, value: number, speed: number | null, weights: number | null): unknown => ({
  name, spec: name, pareto_front: value < 11,
  quality: [{ suite: "perplexity", metric: "perplexity", value, low: value - 1, high: value + 1, n: 20, more_is_better: false },
    { suite: "lab:copy", metric: "score", value: 0.5, low: 0.4, high: 0.6, n: 20 }, { suite: "lab:copy", metric: "score@512", value: 0.5 }],
  speed: { decode_tokens_per_s: speed === null ? null : { median: speed, low: speed, high: speed } },
  memory: { weights_bytes: weights, kv_bytes: weights === null ? null : 1e6 },
});
const file = (configs: unknown[]): string => JSON.stringify({ model: "toy", machine: "one", configs });

test("figures of groups are left out, names say the suite", () => {
  const result = readResult(file([config("plain", 10, 100, 5e6), config("small", 12, 90, 2e6)]));
  assert.deepEqual(result.figures, ["perplexity", "lab:copy score"]);
  assert.equal(result.configs[0]!.figures.get("perplexity")!.moreIsBetter, false);
  assert.equal(result.configs[0]!.megabytes, 6);
  assert.deepEqual(result.configs.map((one) => one.front), [true, false]);
});

test("dots ascend, and what is not measured has none", () => {
  const result = readResult(file([config("plain", 10, 100, 5e6), config("small", 12, 90, 2e6), config("other", 11, null, null)]));
  assert.deepEqual(dots(result, "perplexity", "speed").map((dot) => [dot.config, dot.x]), [[1, 90], [0, 100]]);
  assert.deepEqual(dots(result, "perplexity", "memory").map((dot) => dot.config), [1, 0]);
  assert.deepEqual(dots(result, "nothing", "memory"), []);
  const all = dots(result, "perplexity", "speed");
  assert.equal(nearest(all, (dot) => [dot.x, dot.y], 99, 11)!.config, 0);
  assert.equal(nearest(all, (dot) => [dot.x, dot.y], 500, 11), null);
});

test("other files are refused with a sentence", () => {
  assert.throws(() => readResult("{"), /not JSON/);
  assert.throws(() => readResult("[]"), /no configurations/);
  assert.throws(() => readResult(JSON.stringify({ configs: [{}] })), /has no name/);
});

test("numbers and choices", () => {
  assert.deepEqual([shown(12345.6), shown(0.123456), shown(3)], ["12,346", "0.1235", "3"]);
  assert.deepEqual(choices("evictor=h2o:budget=64 +  sampler=greedy"), ["evictor=h2o:budget=64", "sampler=greedy"]);
  assert.deepEqual(choices("plain"), []);
});
