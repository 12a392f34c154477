// Extensions of Markdown: formulas, subscript and superscript, footnotes.
import type { TokenizerAndRendererExtension } from "marked";
import { readMath } from "./text";

const nextMath = (source: string): number | undefined => {
  const at = source.search(/\$|\\\[|\\\(/);
  return at < 0 ? undefined : at;
};

const at = (source: string, mark: RegExp): number | undefined => {
  const found = source.search(mark);
  return found < 0 ? undefined : found;
};

export interface ScriptToken {
  type: "subscript" | "superscript";
  raw: string;
  text: string;
}

export interface NoteToken {
  type: "note" | "footnote"; // a reference, and the text it refers to
  raw: string;
  label: string;
  text: string;
}

// H~2~O and x^2^: one mark on each side of letters or digits, which a sign may precede. Two tildes are deleted text.
export function readScript(source: string): ScriptToken | undefined {
  const match = /^~(?!~)([+\u2212-]?[\p{L}\p{N}]{1,40})~(?!~)/u.exec(source) ?? /^\^(?!\^)([+\u2212-]?[\p{L}\p{N}]{1,40})\^(?![\p{L}\p{N}])/u.exec(source);
  return match ? { type: match[0].startsWith("~") ? "subscript" : "superscript", raw: match[0], text: match[1]! } : undefined;
}

export function readNote(source: string): NoteToken | undefined {
  const match = /^\[\^([^\s\]^]{1,40})\](?!:)/.exec(source);
  return match ? { type: "note", raw: match[0], label: match[1]!, text: "" } : undefined;
}

// "[^1]: text", and indented lines that continue it.
export function readFootnote(source: string): NoteToken | undefined {
  const match = /^\[\^([^\s\]^]{1,40})\]:[ \t]*([^\n]*(?:\n(?: {2,}|\t)[^\n]+)*)(?:\n|$)/.exec(source);
  return match ? { type: "footnote", raw: match[0], label: match[1]!, text: match[2]!.replace(/\n[ \t]+/g, "\n") } : undefined;
}

export const extensions: TokenizerAndRendererExtension[] = [
  { name: "math", level: "block", start: (source) => source.match(/(?:^|\n) {0,3}(?:\$\$|\\\[)/)?.index, tokenizer: (source) => readMath(source, true) },
  { name: "math", level: "inline", start: nextMath, tokenizer: (source) => readMath(source, false) },
  { name: "footnote", level: "block", start: (source) => at(source, /(?:^|\n)\[\^[^\s\]^]+\]:/), tokenizer: readFootnote },
  { name: "note", level: "inline", start: (source) => at(source, /\[\^/), tokenizer: readNote },
  { name: "script", level: "inline", start: (source) => at(source, /[~^]/), tokenizer: readScript },
];
