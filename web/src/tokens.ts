// A message as tokens, with the probability of each and its alternatives.
import { el } from "./dom";
import type { Token } from "./tree";

const percent = (logprob: number): string => {
  const p = Math.exp(logprob) * 100;
  return p >= 99.95 ? "100 %" : p >= 1 ? `${p.toFixed(1)} %` : p >= 0.01 ? `${p.toFixed(2)} %` : "< 0.01 %";
};

const visible = (token: string): string => token.replace(/\n/g, "\u21b5").replace(/ /g, "\u00b7").replace(/\t/g, "\u21e5") || "(empty)";

// 0 (expected) to 4 (surprising).
export const surprise = (logprob: number): number => [-0.22, -0.9, -2.3, -4.6].filter((bound) => logprob < bound).length;

const card = el("div", { class: "token-card", role: "tooltip", id: "token-card", hidden: true });

function show(span: HTMLElement, token: Token): void {
  const [text, logprob, top] = token;
  const likely = top.some(([other]) => other === text) ? top : [...top, [text, logprob] as [string, number]];
  const rows = likely.map(([other, value]) => {
    const bar = el("span", { class: "token-bar" });
    bar.style.setProperty("--p", String(Math.exp(value)));
    return el("tr", { class: other === text ? "chosen" : undefined }, el("td", {}, el("code", {}, visible(other))), el("td", {}, bar), el("td", {}, percent(value)));
  });
  card.replaceChildren(el("div", { class: "token-card-head" }, el("code", {}, visible(text)), el("strong", {}, percent(logprob))), el("table", {}, ...rows));
  card.hidden = false;
  if (!card.isConnected) document.body.append(card);
  const at = span.getClientRects()[0] ?? span.getBoundingClientRect();
  const { width, height } = card.getBoundingClientRect();
  const below = at.bottom + 6 + height < window.innerHeight;
  card.style.left = `${Math.max(8, Math.min(at.left, window.innerWidth - width - 8))}px`;
  card.style.top = `${below ? at.bottom + 6 : at.top - height - 6}px`;
  span.setAttribute("aria-describedby", "token-card");
}

function hide(span: HTMLElement): void {
  card.hidden = true;
  span.removeAttribute("aria-describedby");
}

window.addEventListener("scroll", () => (card.hidden = true), { capture: true, passive: true });

export class TokenView {
  readonly root = el("div", { class: "tokens", role: "group", "aria-label": "Tokens and their probabilities" });
  private shown = 0;

  update(tokens: Token[]): void {
    if (tokens.length < this.shown) {
      this.root.replaceChildren();
      this.shown = 0;
    }
    for (; this.shown < tokens.length; ++this.shown) this.root.append(this.make(tokens[this.shown]!));
  }

  private make(token: Token): HTMLElement {
    const span: HTMLElement = el("span", { class: `token surprise-${surprise(token[1])}`, tabindex: "0" }, token[0].replace(/\n+$/, (run) => run));
    span.addEventListener("pointerenter", () => show(span, token));
    span.addEventListener("pointerleave", () => hide(span));
    span.addEventListener("focus", () => show(span, token));
    span.addEventListener("blur", () => hide(span));
    return span;
  }
}
