// Markdown to elements. The lexer's tokens become nodes one by one: HTML in a message is plain text, links may
// use http, https and mailto only, and images become links, because nothing is loaded from other hosts.
import { Marked, type Token, type Tokens } from "marked";

import { el, iconButton } from "./dom";
import { extensions, type NoteToken, type ScriptToken } from "./markdown_extensions";
import { plain, safeLink, type MathToken } from "./text";

const marked = new Marked({ gfm: true, extensions });

function link(href: string, ...inside: Node[]): Node {
  const safe = safeLink(href);
  return safe ? el("a", { href: safe, target: "_blank", rel: "noopener noreferrer nofollow" }, ...inside) : el("span", {}, ...inside);
}

function math(token: MathToken): Node {
  const node = el(token.display ? "div" : "span", { class: token.display ? "math math-display" : "math" }, token.text);
  void import("./math").then(({ renderMath }) => renderMath(node, token.text, token.display));
  return node;
}

function code(token: Tokens.Code): Node {
  const language = (token.lang ?? "").split(/\s/)[0] ?? "";
  const inside = el("code", {}, token.text);
  const copy = iconButton("copy", "Copy code", () => void copyText(token.text, copy));
  if (language) {
    void import("./code").then(({ highlight }) => highlight(inside, token.text, language)).catch(() => undefined);
  }
  return el("figure", { class: "code" }, el("figcaption", {}, el("span", {}, language || "text"), copy), el("pre", { tabindex: "0" }, inside));
}

export async function copyText(text: string, button: HTMLElement): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    return; // permission denied, or not a secure context
  }
  button.classList.add("done");
  setTimeout(() => button.classList.remove("done"), 1200);
}

function table(token: Tokens.Table): Node {
  const row = (cells: Tokens.TableCell[], tag: "th" | "td"): HTMLElement =>
    el("tr", {}, ...cells.map((cell, i) => el(tag, { dir: "auto", class: token.align[i] ? `align-${token.align[i]}` : undefined }, ...inline(cell.tokens))));
  return el("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Table" },
    el("table", {}, el("thead", {}, row(token.header, "th")), el("tbody", {}, ...token.rows.map((cells) => row(cells, "td")))));
}

function list(token: Tokens.List): Node {
  const items = token.items.map((item) => {
    const box = item.task ? el("input", { type: "checkbox", disabled: true, checked: item.checked, "aria-label": item.checked ? "done" : "open" }) : null;
    return el("li", { class: item.task ? "task" : undefined, dir: "auto" }, box, ...blocks(item.tokens));
  });
  const out = token.ordered ? el("ol", {}, ...items) : el("ul", {}, ...items);
  if (token.ordered && token.start !== 1 && token.start !== "") out.setAttribute("start", String(token.start));
  return out;
}

// A button instead of a link: the page's address names its view.
function note(token: NoteToken): Node {
  return el("sup", {}, el("button", { type: "button", class: "note", "aria-label": `Footnote ${token.label}`, onclick: (event: Event) => {
    const notes = (event.target as HTMLElement).closest(".markdown")?.querySelectorAll<HTMLElement>(".footnote") ?? [];
    [...notes].find((one) => one.dataset.label === token.label)?.focus();
  } }, token.label));
}

function footnote(token: NoteToken): Node {
  return el("div", { class: "footnote", role: "note", tabindex: "-1", dir: "auto", "aria-label": `Footnote ${token.label}`, "data-label": token.label },
    el("sup", {}, token.label), " ", ...inlineMarkdown(token.text));
}

function inline(tokens: Token[] | undefined): Node[] {
  return (tokens ?? []).map((token): Node => {
    switch (token.type) {
      case "strong": return el("strong", {}, ...inline(token.tokens));
      case "em": return el("em", {}, ...inline(token.tokens));
      case "del": return el("del", {}, ...inline(token.tokens));
      case "codespan": return el("code", {}, (token as Tokens.Codespan).text);
      case "br": return el("br");
      case "link": return link((token as Tokens.Link).href, ...inline(token.tokens));
      case "image": return link((token as Tokens.Image).href, document.createTextNode((token as Tokens.Image).text || (token as Tokens.Image).href));
      case "math": return math(token as unknown as MathToken);
      case "subscript": return el("sub", {}, (token as unknown as ScriptToken).text);
      case "superscript": return el("sup", {}, (token as unknown as ScriptToken).text);
      case "note": return note(token as unknown as NoteToken);
      case "html": return document.createTextNode(token.raw);
      case "escape": return document.createTextNode((token as Tokens.Escape).text);
      default: return (token as Tokens.Text).tokens ? wrap(inline((token as Tokens.Text).tokens)) : document.createTextNode(plain((token as Tokens.Text).text ?? token.raw));
    }
  });
}

function wrap(nodes: Node[]): Node {
  const fragment = document.createDocumentFragment();
  fragment.append(...nodes);
  return fragment;
}

function block(token: Token): Node | null {
  switch (token.type) {
    case "space": case "def": return null;
    // Headings in a message are below the page's own levels.
    case "heading": return el("div", { class: `heading h${(token as Tokens.Heading).depth}`, role: "heading", dir: "auto", "aria-level": String(Math.min(6, (token as Tokens.Heading).depth + 2)) }, ...inline(token.tokens));
    case "paragraph": return el("p", { dir: "auto" }, ...inline(token.tokens));
    case "code": return code(token as Tokens.Code);
    case "blockquote": return el("blockquote", { dir: "auto" }, ...blocks(token.tokens ?? []));
    case "list": return list(token as Tokens.List);
    case "table": return table(token as Tokens.Table);
    case "hr": return el("hr");
    case "html": return el("p", {}, token.raw);
    case "math": return math(token as unknown as MathToken);
    case "footnote": return footnote(token as unknown as NoteToken);
    default: return (token as Tokens.Text).tokens ? wrap(inline((token as Tokens.Text).tokens)) : document.createTextNode(plain((token as Tokens.Text).text ?? token.raw));
  }
}

const blocks = (tokens: Token[]): Node[] => tokens.map(block).filter((node): node is Node => node !== null);

// One line of Markdown, without blocks.
export const inlineMarkdown = (source: string): Node[] => inline(marked.Lexer.lexInline(source, marked.defaults));

// Incremental Markdown: re-renders only from the first changed block on.
export class MarkdownView {
  readonly root = el("div", { class: "markdown" });
  private shown: { raw: string; node: HTMLElement }[] = [];

  update(source: string): void {
    const tokens = marked.lexer(source.replace(/\u0000/g, "\ufffd")).filter((token) => token.type !== "space" && token.type !== "def");
    let same = 0;
    while (same < tokens.length && same < this.shown.length && this.shown[same]!.raw === tokens[same]!.raw) ++same;
    for (const old of this.shown.splice(same)) old.node.remove();
    for (const token of tokens.slice(same)) {
      const made = block(token);
      if (!made) continue;
      const node = made instanceof HTMLElement ? made : el("p", {}, made);
      this.root.append(node);
      this.shown.push({ raw: token.raw, node });
    }
  }
}
