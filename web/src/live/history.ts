// The state of the live view: the feed's snapshots merged into streams, steps and distributions of the last minute.
// Times are seconds of the engine's clock.

export type Phase = "waiting" | "running" | "held_back" | "swapping_out" | "swapped" | "loading" | "looking_up";

export interface StreamJson {
  id: string;
  phase: Phase;
  prompt: number;
  computed: number;
  cached: number;
  generated: number;
  blocks: number;
  drafted: number;  // tokens that ran
  accepted: number; // of those, tokens that saved a step
  preemptions: number;
  submitted: number;
  admitted: number;
  first_token: number;
  ended?: number;
}

export type ChunkJson = [stream: string, tokens: number, prefill: 0 | 1, sampled: 0 | 1];
export type StepJson = [number: number, began: number, seconds: number, prefill: number, decode: number, streams: number, admitted: number, preempted: number, chunks: ChunkJson[]];
export type CellsJson = [count: number, owner: number, streams: number, cached: 0 | 1];

export interface SnapshotJson {
  now: number;
  running: number;
  waiting: number;
  streams: StreamJson[];
  left_out: number;
  ended: StreamJson[];
  steps: StepJson[];
  missed: number;
  blocks: { total: number; free: number; cached: number; tokens: number; in_cell: number; cells: CellsJson[] };
  totals: Record<string, number>;
  swap_free_tokens: number;
  memory_budget: number;
  memory: { name: string; bytes: number; peak: number }[];
  store?: { blocks: number; capacity: number; hit_tokens: number; read_bytes: number; written_bytes: number };
}

export interface HelloJson {
  model: string;
  loaded?: boolean;
  context: number;
  each_second: number;
  kv_blocks: number;
  kv_bytes: number;
  techniques: { family: string; name: string; summary: string }[]; // the members in use, by family
  options: {
    policy: string; max_streams: number; queue: number; batch_tokens: number; kv_format: string; kv_pool: string;
    prefix_cache: boolean; prefix_evict: string; swap_tokens: number; kv_store: boolean;
  };
}

export interface Lane extends StreamJson {
  row: number;
  hue: number; // index into the palette, constant for a stream
}

export const WINDOW = 60;       // seconds of history
export const HUES = 8;
const MOST_STEPS = 4096;
const MOST_SAMPLES = 4096;

export class History {
  snapshot: SnapshotJson | null = null;
  lanes: Lane[] = [];
  steps: StepJson[] = [];
  ttft: number[] = [];  // seconds, of streams whose first token arrived while watching
  itl: number[] = [];
  private lastToken = new Map<string, number>();
  private counted = new Set<string>();
  private nextHue = 0;

  add(snapshot: SnapshotJson): void {
    if (this.snapshot && snapshot.now < this.snapshot.now) this.clear(); // another engine: the model was loaded again
    this.snapshot = snapshot;
    for (const step of snapshot.steps) this.addStep(step);
    if (this.steps.length > MOST_STEPS) this.steps.splice(0, this.steps.length - MOST_STEPS);
    const known = new Map(this.lanes.map((lane) => [lane.id, lane]));
    for (const stream of [...snapshot.ended, ...snapshot.streams]) {
      const lane = known.get(stream.id);
      if (lane) Object.assign(lane, stream);
      else this.lanes.push({ ...stream, row: this.freeRow(stream.submitted), hue: this.nextHue++ % HUES });
      this.addFirst(stream);
      if (stream.ended !== undefined) this.lastToken.delete(stream.id);
    }
    const from = snapshot.now - WINDOW;
    this.lanes = this.lanes.filter((lane) => (lane.ended ?? snapshot.now) > from);
    this.steps = this.steps.filter((step) => step[1] > from);
    if (this.counted.size > 10_000) this.counted.clear();
  }

  private clear(): void {
    this.lanes = [];
    this.steps = [];
    this.ttft = [];
    this.itl = [];
    this.lastToken.clear();
    this.counted.clear();
  }

  private addStep(step: StepJson): void {
    this.steps.push(step);
    const end = step[1] + step[2];
    for (const [stream, , , sampled] of step[8]) {
      if (!sampled) continue;
      const before = this.lastToken.get(stream);
      if (before !== undefined) push(this.itl, end - before);
      this.lastToken.set(stream, end);
    }
  }

  private addFirst(stream: StreamJson): void {
    if (stream.first_token === 0 || this.counted.has(stream.id)) return;
    this.counted.add(stream.id);
    push(this.ttft, stream.first_token - stream.submitted);
  }

  // The topmost row unused since `from`, with a short gap between lanes.
  private freeRow(from: number): number {
    const taken = new Set(this.lanes.filter((lane) => (lane.ended ?? Infinity) > from - 0.5).map((lane) => lane.row));
    let row = 0;
    while (taken.has(row)) ++row;
    return row;
  }

  // Seconds shown by the charts: the smallest span that shows every lane from its start.
  span(): number {
    const now = this.snapshot?.now ?? 0;
    const oldest = Math.min(now, ...this.lanes.map((lane) => lane.submitted));
    return [6, 15, 30].find((span) => now - oldest < span) ?? WINDOW;
  }

  // Tokens per second over the last `seconds`, and the mean step time.
  rates(seconds = 2): { decode: number; prefill: number; stepSeconds: number } {
    const now = this.snapshot?.now ?? 0;
    const recent = this.steps.filter((step) => step[1] > now - seconds);
    const sum = (index: 3 | 4): number => recent.reduce((all, step) => all + step[index], 0);
    const busy = recent.reduce((all, step) => all + step[2], 0);
    return { decode: sum(4) / seconds, prefill: sum(3) / seconds, stepSeconds: recent.length > 0 ? busy / recent.length : 0 };
  }

  // Tokens per second in each of `count` parts of the last `span` seconds, oldest first.
  series(count: number, span = WINDOW): { time: number; decode: number; prefill: number }[] {
    const width = span / count;
    const now = Math.floor((this.snapshot?.now ?? 0) / width) * width;
    const out = Array.from({ length: count }, (_, i) => ({ time: -span + (i + 1) * width, decode: 0, prefill: 0 }));
    for (const step of this.steps) {
      const at = count - 1 - Math.floor((now - step[1]) / width);
      const slot = out[at];
      if (!slot || step[1] >= now) continue;
      slot.prefill += step[3] / width;
      slot.decode += step[4] / width;
    }
    return out;
  }
}

function push(samples: number[], value: number): void {
  if (!(value >= 0)) return;
  samples.push(value);
  if (samples.length > MOST_SAMPLES) samples.shift();
}

// q: 0..1.
export function quantile(samples: number[], q: number): number {
  if (samples.length === 0) return NaN;
  const sorted = [...samples].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))]!;
}

// Counts in `bins` logarithmic bins between the smallest and the largest sample, spanning at least a factor of 4.
export function histogram(samples: number[], bins: number): { from: number; to: number; counts: number[] } {
  const positive = samples.filter((value) => value > 0);
  if (positive.length === 0) return { from: 0.001, to: 0.1, counts: new Array<number>(bins).fill(0) };
  let from = Math.min(...positive), to = Math.max(...positive);
  if (to / from < 4) {
    const middle = Math.sqrt(from * to);
    from = middle / 2;
    to = middle * 2;
  }
  const counts = new Array<number>(bins).fill(0);
  for (const value of positive) {
    const at = Math.floor((Math.log(value / from) / Math.log(to / from)) * bins);
    counts[Math.max(0, Math.min(bins - 1, at))]! += 1;
  }
  return { from, to, counts };
}

export function seconds(value: number): string {
  if (!Number.isFinite(value)) return "–";
  if (value < 0.001) return `${(value * 1e6).toFixed(0)} µs`;
  if (value < 0.01) return `${(value * 1e3).toFixed(2)} ms`;
  if (value < 1) return `${(value * 1e3).toFixed(value < 0.1 ? 1 : 0)} ms`;
  return `${value.toFixed(value < 10 ? 2 : 0)} s`;
}

export function count(value: number): string {
  if (value >= 1e6) return `${(value / 1e6).toFixed(value < 1e7 ? 1 : 0)}M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(0)}k`;
  return value >= 1e3 ? `${(value / 1e3).toFixed(1)}k` : value >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(1);
}

export function bytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  return `${value.toFixed(value < 10 && unit > 0 ? 1 : 0)} ${units[unit]}`;
}
