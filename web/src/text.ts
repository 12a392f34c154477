// Text processing without DOM elements: formulas, character references, safe links, sizes, error messages.

export interface MathToken {
  type: "math";
  raw: string;
  text: string;
  display: boolean;
}

const rules: [RegExp, boolean][] = [
  [/^\$\$([\s\S]+?)\$\$/, true],
  [/^\\\[([\s\S]+?)\\\]/, true],
  [/^\\\(([\s\S]+?)\\\)/, false],
  [/^\$(?![\s\d.,]+\s)((?:\\[\s\S]|[^$\\\n])+?)(?<!\s)\$(?!\d)/, false], // not "$5 and $6"
];

export function readMath(source: string, displayOnly: boolean): MathToken | undefined {
  for (const [rule, display] of rules) {
    if (displayOnly && !display) continue;
    const match = rule.exec(source);
    if (match && match[1]!.trim()) return { type: "math", raw: match[0], text: match[1]!.trim(), display };
  }
  return undefined;
}

const entities: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0" };
// Decodes character references, which Markdown inherits from HTML.
export const plain = (text: string): string =>
  text.replace(/&(?:#(\d{1,7})|#x([\da-f]{1,6})|(\w{2,6}));/gi, (whole, decimal?: string, hex?: string, name?: string) => {
    const code = decimal ? Number(decimal) : hex ? parseInt(hex, 16) : 0;
    if (name) return entities[name] ?? whole;
    return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : whole;
  });

export function safeLink(href: string): string | null {
  try {
    const url = new URL(href, "https://nowhere.invalid");
    return ["http:", "https:", "mailto:"].includes(url.protocol) && url.hostname !== "nowhere.invalid" ? url.href : null;
  } catch {
    return null;
  }
}

const LONG = 1500; // characters
const LONG_LINES = 20;

// Returns true if a text is long: a message folds it, and a paste attaches it as a file.
export const isLong = (text: string): boolean => text.length > LONG || text.split("\n").length > LONG_LINES;

export const size = (characters: number): string => (characters < 1000 ? `${characters} characters` : `${(characters / 1000).toFixed(1)}k characters`);

// Returns the number of bytes of a text in UTF-8. A text has at most as many tokens as bytes.
export const byteLength = (text: string): number => new TextEncoder().encode(text).length;

// Returns the message of anything that was thrown.
export const reason = (error: unknown): string => (error instanceof Error ? error.message : String(error));
