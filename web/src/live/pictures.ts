// The charts of the live view, drawn from History.
import { histogram, quantile, seconds, type CellsJson, type History, type StepJson } from "./history";
import type { Palette } from "./plot";

type Context = CanvasRenderingContext2D;

export const ROW = 22;

// Streams over the last seconds: a thin line while waiting, pale during prefill, full during decode.
export function drawLanes(g: Context, width: number, height: number, history: History, colors: Palette): void {
  const now = history.snapshot?.now ?? 0;
  const span = history.span();
  const axis = height - 18;
  const x = (time: number): number => width - ((now - time) / span) * width;
  g.font = colors.font;
  g.textBaseline = "middle";
  g.fillStyle = colors.faint;
  g.strokeStyle = colors.line;
  g.lineWidth = 1;
  for (let ago = 0; ago <= span; ago += span <= 6 ? 1 : span <= 15 ? 3 : span <= 30 ? 5 : 10) {
    const at = Math.round(x(now - ago)) - 0.5;
    g.beginPath();
    g.moveTo(at, 0);
    g.lineTo(at, axis);
    g.stroke();
    g.textAlign = ago === 0 ? "right" : ago === span ? "left" : "center";
    g.fillText(ago === 0 ? "now" : `${ago} s`, at, height - 8);
  }
  for (const lane of history.lanes) {
    const top = lane.row * ROW + 4, tall = ROW - 8;
    const end = lane.ended ?? now;
    const admitted = lane.admitted || end, first = lane.first_token || end;
    const hue = colors.hues[lane.hue]!;
    const bar = (from: number, to: number, alpha: number, y: number, h: number): void => {
      if (to <= from) return;
      g.globalAlpha = alpha;
      g.fillStyle = hue;
      g.beginPath();
      g.roundRect(Math.max(0, x(from)), y, Math.max(2, x(to) - Math.max(0, x(from))), h, 3);
      g.fill();
      g.globalAlpha = 1;
    };
    bar(lane.submitted, Math.min(admitted, end), 0.55, top + tall / 2 - 1, 2);
    bar(admitted, Math.min(first, end), 0.4, top, tall);
    bar(first, end, 1, top, tall);
    const text = `#${lane.id}  ${lane.prompt} + ${lane.generated}${lane.drafted > 0 ? `  drafts ${lane.accepted}/${lane.drafted}` : ""}${lane.preemptions > 0 ? `  preempted ${lane.preemptions}×` : ""}`;
    const right = x(end), left = Math.max(0, x(lane.submitted));
    const long = g.measureText(text).width;
    g.textAlign = "left";
    if (right - Math.max(0, x(first)) > long + 12) {
      g.fillStyle = colors.surface;
      g.fillText(text, right - long - 6, top + tall / 2 + 0.5);
      continue;
    }
    const at = right + long + 8 < width ? right + 6 : Math.max(0, left - long - 6);
    const taken = history.lanes.some((other) => other !== lane && other.row === lane.row && x(other.submitted) < at + long && x(other.ended ?? now) > at);
    g.fillStyle = colors.faint;
    if (!taken) g.fillText(text, at, top + tall / 2 + 0.5);
  }
}

// The contents of the last steps: decoded tokens below, prefilled ones on top, on a square-root scale; below the axis, the
// step time.
export function drawSteps(g: Context, width: number, height: number, steps: StepJson[], colors: Palette): void {
  const gutter = 30, under = 34, gap = 12;
  const tall = height - under - gap;
  const pitch = 5;
  const shown = steps.slice(-Math.floor((width - gutter) / pitch));
  const most = Math.max(...shown.map((step) => step[3] + step[4]), 1);
  const limit = [8, 64, 512, 4096].find((one) => most <= one) ?? most;
  const y = (tokens: number): number => Math.sqrt(tokens / limit) * (tall - 8);
  g.font = colors.font;
  g.textBaseline = "middle";
  g.textAlign = "right";
  let above = Infinity;
  for (const mark of [1, 8, 64, 512, 4096].filter((one) => one <= limit)) {
    const at = Math.round(tall - y(mark)) - 0.5;
    if (above - at < 13) continue;
    above = at;
    g.strokeStyle = colors.line;
    g.beginPath();
    g.moveTo(gutter, at);
    g.lineTo(width, at);
    g.stroke();
    g.fillStyle = colors.faint;
    g.fillText(String(mark), gutter - 6, at);
  }
  const slowest = Math.max(...shown.map((step) => step[2]), 1e-4);
  shown.forEach((step, index) => {
    const left = width - (shown.length - index) * pitch;
    const all = y(step[3] + step[4]), decode = step[3] + step[4] > 0 ? (all * step[4]) / (step[3] + step[4]) : 0;
    g.fillStyle = colors.decode;
    g.fillRect(left, tall - decode, pitch - 1, decode);
    g.fillStyle = colors.prefill;
    g.fillRect(left, tall - all, pitch - 1, all - decode);
    if (step[7] > 0) {
      g.fillStyle = colors.ink;
      g.fillRect(left, tall - all - 4, pitch - 1, 2);
    }
    g.fillStyle = colors.faint;
    const took = (step[2] / slowest) * (under - 8);
    g.fillRect(left, height - took, pitch - 1, took);
  });
  g.fillStyle = colors.faint;
  g.textAlign = "left";
  if (shown.length > 0) g.fillText(seconds(slowest), 0, height - under + 8);
}

export interface Cell {
  owner: number;
  streams: number;
  cached: boolean;
}

export const expand = (runs: CellsJson[]): Cell[] =>
  runs.flatMap(([count, owner, streams, cached]) => new Array<Cell>(Math.min(count, 8192)).fill({ owner, streams, cached: cached === 1 }));

export interface Grid {
  side: number;
  columns: number;
  rows: number;
}

// The largest square cells that fit.
export function gridOf(cells: number, width: number, mostHeight: number): Grid {
  for (let side = 22; side > 2; --side) {
    const columns = Math.max(1, Math.floor(width / side));
    const rows = Math.ceil(cells / columns);
    if (rows * side <= mostHeight) return { side, columns, rows };
  }
  const columns = Math.max(1, Math.floor(width / 2));
  return { side: 2, columns, rows: Math.ceil(cells / columns) };
}

// Every block of the KV cache in the colour of its owner, with a dot if several streams share it.
export function drawBlocks(g: Context, cells: Cell[], grid: Grid, hueOf: (owner: number) => string | undefined, colors: Palette): void {
  const size = grid.side > 3 ? grid.side - 1 : grid.side;
  cells.forEach((cell, index) => {
    const x = (index % grid.columns) * grid.side, y = Math.floor(index / grid.columns) * grid.side;
    g.globalAlpha = 1;
    g.fillStyle = cell.streams > 0 ? (hueOf(cell.owner) ?? colors.faint) : colors.sunken;
    g.fillRect(x, y, size, size);
    if (cell.streams === 0 && cell.cached) {
      g.globalAlpha = 0.42;
      g.fillStyle = colors.decode;
      g.fillRect(x, y, size, size);
    }
    if (cell.streams > 1) {
      g.globalAlpha = 1;
      g.fillStyle = colors.surface;
      const dot = Math.max(1.5, size * 0.36);
      g.fillRect(x + (size - dot) / 2, y + (size - dot) / 2, dot, dot);
    }
  });
  g.globalAlpha = 1;
}

export function drawHistogram(g: Context, width: number, height: number, samples: number[], color: string, colors: Palette): void {
  const bins = 28, axis = height - 16;
  const { from, to, counts } = histogram(samples, bins);
  const most = Math.max(...counts, 1);
  const wide = width / bins;
  counts.forEach((count, index) => {
    const tall = count === 0 ? 1 : Math.max(2, (count / most) * (axis - 6));
    g.fillStyle = count === 0 ? colors.line : color;
    g.fillRect(index * wide, axis - tall, wide - 1.5, tall);
  });
  g.font = colors.font;
  g.fillStyle = colors.faint;
  g.textBaseline = "alphabetic";
  if (samples.length === 0) return;
  const middle = quantile(samples, 0.5);
  const at = (Math.log(middle / from) / Math.log(to / from)) * width;
  g.strokeStyle = colors.ink;
  g.beginPath();
  g.moveTo(Math.round(at) + 0.5, 0);
  g.lineTo(Math.round(at) + 0.5, axis);
  g.stroke();
  g.textAlign = "left";
  g.fillText(seconds(from), 0, height - 3);
  g.textAlign = "right";
  g.fillText(seconds(to), width, height - 3);
}
