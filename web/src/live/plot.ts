// A canvas sized to its container and the device pixel ratio, and the colours of the page.
import { el } from "../dom";
import { HUES } from "./history";

export interface Palette {
  ink: string;
  faint: string;
  line: string;
  surface: string;
  sunken: string;
  prefill: string;
  decode: string;
  font: string;
  hues: string[];
}

export function palette(): Palette {
  const style = getComputedStyle(document.documentElement);
  const of = (name: string): string => style.getPropertyValue(name).trim();
  return {
    ink: of("--ink"), faint: of("--faint"), line: of("--line"), surface: of("--surface"), sunken: of("--sunken"), prefill: of("--prefill"), decode: of("--decode"),
    font: `11px ${of("--sans")}`, hues: Array.from({ length: HUES }, (_, i) => of(`--hue-${i}`)),
  };
}

export class Plot {
  readonly canvas = el("canvas", { role: "img" });
  private width = 0;

  constructor(label: string, private height: number) {
    this.canvas.setAttribute("aria-label", label);
  }

  // Sets the text alternative of the chart.
  say(text: string): void {
    this.canvas.setAttribute("aria-label", text);
  }

  draw(paint: (context: CanvasRenderingContext2D, width: number, height: number) => void, height = this.height): void {
    const ratio = window.devicePixelRatio || 1;
    const width = this.canvas.parentElement?.clientWidth ?? 0;
    if (width === 0) return;
    const wanted = [Math.round(width * ratio), Math.round(height * ratio)] as const;
    if (this.canvas.width !== wanted[0] || this.canvas.height !== wanted[1] || this.width !== width) {
      [this.canvas.width, this.canvas.height] = wanted;
      this.canvas.style.height = `${height}px`;
      this.width = width;
      this.height = height;
    }
    const context = this.canvas.getContext("2d");
    if (!context) return;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    paint(context, width, height);
  }
}
