// Creates elements without HTML strings, which the page's content security policy forbids.

type Child = Node | string | null | undefined | false;
type Props = Record<string, unknown>;

// Properties starting with "on" are listeners; true is an attribute without a value; false, null and undefined are skipped.
export function el<K extends keyof HTMLElementTagNameMap>(tag: K, props: Props = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === false || value === null) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2).toLowerCase(), value as EventListener);
    else if (name === "class") node.className = String(value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child): child is Node | string => child !== null && child !== undefined && child !== false));
  return node;
}

// Makes `nodes` the children of `parent`. Children that stay are not moved: they keep the keyboard focus, and a press
// that began on one ends on it.
export function arrange(parent: HTMLElement, nodes: HTMLElement[]): void {
  const wanted = new Set<Element>(nodes);
  for (const child of [...parent.children]) if (!wanted.has(child)) child.remove();
  nodes.forEach((node, index) => {
    if (parent.children[index] !== node) parent.insertBefore(node, parent.children[index] ?? null);
  });
}

// Sets the text of an element. The same text changes nothing, so that screen readers do not repeat it.
export function setText(node: HTMLElement, text: string): void {
  if (node.textContent !== text) node.textContent = text;
}

const SVG = "http://www.w3.org/2000/svg";

// 24 x 24, strokes only.
const icons = {
  plus: "M12 5v14M5 12h14",
  send: "M5 12h14M13 6l6 6-6 6",
  stop: "M7 7h10v10H7z",
  menu: "M4 7h16M4 12h16M4 17h16",
  sliders: "M4 8h9M17 8h3M4 16h3M11 16h9M13 6v4M7 14v4",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6L19 19M5 19l1.4-1.4M17.6 6.4L19 5",
  moon: "M20 14.5A8 8 0 0 1 9.5 4 8 8 0 1 0 20 14.5z",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  check: "M5 12.5l4.5 4.5L19 7",
  edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  redo: "M20 5v5h-5M19.5 10A8 8 0 1 0 20 14",
  left: "M14 6l-6 6 6 6",
  right: "M10 6l6 6-6 6",
  trash: "M5 7h14M10 7V5h4v2M7 7l1 13h8l1-13",
  clip: "M20 11l-8.5 8.5a5 5 0 0 1-7-7L13 4a3.5 3.5 0 0 1 5 5l-8.5 8.5a2 2 0 0 1-3-3L14 7",
  close: "M6 6l12 12M18 6L6 18",
  download: "M12 4v11M7 11l5 5 5-5M5 20h14",
  upload: "M12 16V5M7 9l5-5 5 5M5 20h14",
  tokens: "M4 6h6v5H4zM13 6h7v5h-7zM4 14h9v5H4zM16 14h4v5h-4z",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
  key: "M14 4a6 6 0 1 0 0 12 6 6 0 0 0 0-12zM9.5 14.5L4 20M6.5 17.5l2 2",
  info: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 11v6M12 7.5h.01",
  keyboard: "M3 7h18v10H3zM7 10h.01M11 10h.01M15 10h.01M8 14h8",
} as const;

export type IconName = keyof typeof icons;

export function icon(name: IconName): SVGSVGElement {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", icons[name]);
  svg.append(path);
  return svg;
}

export function iconButton(name: IconName, label: string, onclick: (event: MouseEvent) => void, props: Props = {}): HTMLButtonElement {
  return el("button", { type: "button", class: "icon-button", "aria-label": label, title: label, onclick, ...props }, icon(name));
}

export const media = {
  dark: window.matchMedia("(prefers-color-scheme: dark)"),
  narrow: window.matchMedia("(max-width: 860px)"),
  still: window.matchMedia("(prefers-reduced-motion: reduce)"),
};

export function download(name: string, text: string): void {
  const link = el("a", { href: URL.createObjectURL(new Blob([text], { type: "application/json" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
