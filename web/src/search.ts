// Search in a conversation: all words of the query must occur in its title, its messages or their files.
import type { Conversation } from "./tree";

const AROUND = 40; // characters before and after the found word

const folded = (text: string): string => text.toLowerCase();

export const wordsOf = (query: string): string[] => folded(query).split(/\s+/).filter((word) => word !== "");

// The text around the first word in the earliest message with it, "" if only the title has it; undefined if a word is
// missing.
export function find(conversation: Conversation, query: string): string | undefined {
  const words = wordsOf(query);
  if (words.length === 0) return undefined;
  const messages = Object.values(conversation.messages).sort((a, b) => a.created - b.created);
  const texts = messages.flatMap((message) => [message.content, ...(message.files ?? []).flatMap((file) => [file.name, file.text])]);
  const all = [conversation.title, ...texts].map(folded);
  if (!words.every((word) => all.some((text) => text.includes(word)))) return undefined;
  for (const word of words) {
    const index = texts.findIndex((text) => folded(text).includes(word));
    if (index >= 0) return snippet(texts[index]!, folded(texts[index]!).indexOf(word), word.length);
  }
  return "";
}

function snippet(text: string, at: number, length: number): string {
  const from = Math.max(0, at - AROUND), to = Math.min(text.length, at + length + AROUND);
  return (from > 0 ? "… " : "") + text.slice(from, to).replace(/\s+/g, " ").trim() + (to < text.length ? " …" : "");
}
