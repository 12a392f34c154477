// Results of `millrace compare`, as the page reads them.
import assert from "node:assert/strict";
import { test } from "node:test";

import { dots, figureTitle, nearest, readResult, shown, withInterval } from "../src/compare/result";
import { overall, partText, specText, wrongValue } from "../src/compare/spec";

const config = (name: string, value: number, speed: number | null, weights: number | null): unknown => ({
  name, spec: name, pareto_front: value < 11,
  quality: [{ suite: "perplexity", metric: "perplexity", value, low: value - 1, high: value + 1, n: 20, more_is_better: false },
    { suite: "lab:copy", metric: "score", value: 0.5, low: 0.4, high: 0.6, n: 20 }, { suite: "lab:copy", metric: "score@512", value: 0.5 }],
  speed: { decode_tokens_per_s: speed === null ? null : { median: speed, low: speed - 5, high: speed + 5 } },
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

test("dots have the intervals of both axes", () => {
  const [dot] = dots(readResult(file([config("plain", 10, 100, 5e6)])), "perplexity", "speed");
  assert.deepEqual([dot!.left, dot!.right, dot!.low, dot!.high], [95, 105, 9, 11]);
  assert.deepEqual([dots(readResult(file([config("plain", 10, 100, 5e6)])), "perplexity", "memory")[0]!.left], [6]);
});

test("numbers, intervals and titles of axes", () => {
  assert.deepEqual([shown(12345.6), shown(0.123456), shown(3)], ["12,346", "0.1235", "3"]);
  assert.equal(withInterval({ value: 2, low: 1, high: 3 }), "2 [1, 3]");
  assert.equal(withInterval({ value: 2, low: 2, high: 2 }), "2");
  assert.equal(figureTitle("perplexity", false), "Perplexity (lower is better)");
});

test("a configuration is written as for --use", () => {
  const h2o = { family: "evictor", name: "h2o", values: { budget: " 64 ", recent: "" } };
  assert.equal(partText(h2o), "evictor=h2o:budget=64");
  assert.equal(specText([h2o, { family: "kv_format", name: "q8_0", values: {} }], "small"), "model=small + evictor=h2o:budget=64 + kv_format=q8_0");
  assert.equal(specText([]), "plain");
});

test("values of options are checked against their bounds", () => {
  const option = { name: "budget", type: "integer" as const, default: "256", help: "", min: 16, max: 1024 };
  assert.equal(wrongValue(option, ""), "");
  assert.equal(wrongValue(option, "64"), "");
  assert.match(wrongValue(option, "8"), /at least 16/);
  assert.match(wrongValue(option, "2000"), /at most 1024/);
  assert.match(wrongValue(option, "1.5"), /whole number/);
  assert.match(wrongValue(option, "many"), /a number/);
});

test("the progress of a part is that of the whole comparison", () => {
  assert.equal(overall("2/4 lab:copy", 0.5), 0.375);
  assert.equal(overall("loading", 0), 0);
});
