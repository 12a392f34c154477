// TeX to MathML, which browsers draw by themselves: no fonts to load. Loaded when the first formula comes.
import temml from "temml";

import "./math.css";

export function renderMath(into: HTMLElement, source: string, display: boolean): void {
  try {
    temml.render(source, into, { displayMode: display, throwOnError: true, trust: false, strict: false, maxExpand: 200, maxSize: [20, 100] });
  } catch {
    into.textContent = source; // half a formula, while it streams
    into.classList.add("math-source");
  }
}
