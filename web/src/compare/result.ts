// The result of `millrace compare --json`, read for the plot and the table.

export interface Interval {
  value: number;
  low: number;
  high: number;
}

export interface Figure extends Interval {
  name: string; // "perplexity", "lab:copy score"
  moreIsBetter: boolean;
  unseen: string; // why the figure cannot show what the configuration loses; "": it can
}

export interface Config {
  name: string;
  spec: string;
  front: boolean;
  figures: Map<string, Figure>;
  decode: Interval | null; // tokens/s
  megabytes: number | null; // of weights, and of one stream's keys and values
}

export interface Result {
  model: string;
  machine: string;
  configs: Config[];
  figures: string[]; // of all configurations, in order; figures of groups are left out
}

type Json = Record<string, unknown>;

const isObject = (value: unknown): value is Json => typeof value === "object" && value !== null && !Array.isArray(value);
const number = (value: unknown): number | null => (typeof value === "number" && Number.isFinite(value) ? value : null);
const text = (value: unknown): string => (typeof value === "string" ? value : "");

function interval(json: unknown, name: string): Interval | null {
  if (!isObject(json)) return null;
  const value = number(json[name]);
  return value === null ? null : { value, low: number(json.low) ?? value, high: number(json.high) ?? value };
}

function readConfig(json: unknown): Config {
  if (!isObject(json) || typeof json.name !== "string") throw new Error("a configuration has no name");
  const figures = new Map<string, Figure>();
  for (const one of Array.isArray(json.quality) ? json.quality : []) {
    const read = interval(one, "value");
    if (!read || text(one.metric).includes("@")) continue;
    const name = (one.suite === one.metric ? text(one.metric) : `${text(one.suite)} ${text(one.metric)}`).replaceAll("_", " ");
    figures.set(name, { ...read, name, moreIsBetter: one.more_is_better !== false, unseen: text(one.unseen) });
  }
  const memory = isObject(json.memory) ? json.memory : {};
  const weights = number(memory.weights_bytes);
  return {
    name: json.name, spec: text(json.spec), front: json.pareto_front === true, figures,
    decode: isObject(json.speed) ? interval(json.speed.decode_tokens_per_s, "median") : null,
    megabytes: weights === null ? null : (weights + (number(memory.kv_bytes) ?? 0)) / 1e6,
  };
}

// Throws an Error with a sentence for the reader.
export function readResult(source: string): Result {
  let json: unknown;
  try {
    json = JSON.parse(source);
  } catch {
    throw new Error("This file is not JSON. Choose one that `millrace compare --json` has written.");
  }
  return readResultJson(json);
}

export function readResultJson(json: unknown): Result {
  if (!isObject(json) || !Array.isArray(json.configs) || json.configs.length === 0) throw new Error("This file has no configurations. Choose one that `millrace compare --json` has written.");
  const configs = json.configs.map(readConfig);
  const figures = [...new Set(configs.flatMap((config) => [...config.figures.keys()]))];
  return { model: text(json.model), machine: text(json.machine), configs, figures };
}

export type Axis = "speed" | "memory";

export interface Dot {
  config: number;
  x: number;
  y: number;
  low: number; // of y
  high: number;
  left: number; // of x
  right: number;
  front: boolean;
}

// Ascending by x, as uPlot needs them. Configurations without both values are left out.
export function dots(result: Result, figure: string, axis: Axis): Dot[] {
  return result.configs
    .flatMap((config, i): Dot[] => {
      const of = config.figures.get(figure);
      const x: Interval | null = axis === "speed" ? config.decode : config.megabytes === null ? null : { value: config.megabytes, low: config.megabytes, high: config.megabytes };
      return of && x ? [{ config: i, x: x.value, left: x.low, right: x.high, y: of.value, low: of.low, high: of.high, front: config.front }] : [];
    })
    .sort((a, b) => a.x - b.x);
}

// The dot nearest to a place, within `reach` pixels.
export function nearest(all: Dot[], place: (dot: Dot) => [number, number], x: number, y: number, reach = 24): Dot | null {
  let best: Dot | null = null, away = reach;
  for (const dot of all) {
    const [px, py] = place(dot), distance = Math.hypot(px - x, py - y);
    if (distance <= away) [best, away] = [dot, distance];
  }
  return best;
}

export const shown = (value: number): string => (Math.abs(value) >= 1000 || Number.isInteger(value) ? Math.round(value).toLocaleString("en") : value.toPrecision(4));

// "10.2 [9.8, 10.6]"; only the value if the interval has no width.
export const withInterval = ({ value, low, high }: Interval): string => (low === high ? shown(value) : `${shown(value)} [${shown(low)}, ${shown(high)}]`);

export const axisTitles: Record<Axis, string> = { speed: "Decode speed, tokens/s", memory: "Weights and KV cache, MB" };

// The figure with its direction, as the title of the vertical axis. The better end is on top.
export const figureTitle = (figure: string, moreIsBetter: boolean): string => `${figure.charAt(0).toUpperCase()}${figure.slice(1)} (${moreIsBetter ? "higher" : "lower"} is better)`;
