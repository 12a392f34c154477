// TeX to MathML, which browsers render without extra fonts. Loaded with the first formula.
import temml from "temml";

import "./math.css";

export function renderMath(into: HTMLElement, source: string, display: boolean): void {
  try {
    temml.render(source, into, { displayMode: display, throwOnError: true, trust: false, strict: false, maxExpand: 200, maxSize: [20, 100] });
  } catch {
    into.textContent = source; // incomplete while it streams
    into.classList.add("math-source");
  }
}
