// The library of system prompts, in the browser's storage.

export interface SavedPrompt {
  name: string;
  text: string;
}

const KEY = "millrace.prompts";
export const MOST_PROMPTS = 200;

export function readPrompts(stored: string | null): SavedPrompt[] {
  try {
    const list = JSON.parse(stored ?? "[]") as unknown;
    if (!Array.isArray(list)) return [];
    return list.filter((one): one is SavedPrompt => typeof one?.name === "string" && typeof one?.text === "string").slice(0, MOST_PROMPTS);
  } catch {
    return [];
  }
}

// The list with the prompt in it, in place of one of the same name; sorted by name. The caller checks its length against
// MOST_PROMPTS.
export function withPrompt(list: SavedPrompt[], one: SavedPrompt): SavedPrompt[] {
  return [...list.filter((other) => other.name !== one.name), one].sort((a, b) => a.name.localeCompare(b.name));
}

// The name proposed for a prompt: its first words.
export function nameOf(text: string): string {
  const line = text.trim().split("\n")[0] ?? "";
  return line.length <= 40 ? line : line.slice(0, 40).replace(/\s+\S*$/, "") + " …";
}

// Returns no prompts if the browser refuses access to its storage.
export function loadPrompts(): SavedPrompt[] {
  try {
    return readPrompts(localStorage.getItem(KEY));
  } catch {
    return [];
  }
}

// Returns false if the browser refuses to store it.
export function savePrompts(list: SavedPrompt[]): boolean {
  try {
    localStorage.setItem(KEY, JSON.stringify(list));
    return true;
  } catch {
    return false;
  }
}
