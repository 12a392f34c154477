// The settings of a chat request that are texts: strings that end an answer, and the JSON Schema that it must match.
import { reason } from "./text";

export const MOST_STOPS = 64; // that the server takes

// One string a line. \n and \t are a newline and a tab, \\ is a backslash.
export function stopStrings(text: string): string[] {
  const lines = text.split("\n").filter((line) => line !== "");
  return lines.map((line) => line.replace(/\\(n|t|\\)/g, (_, letter: string) => (letter === "n" ? "\n" : letter === "t" ? "\t" : "\\")));
}

export interface SchemaSetting {
  schema: object | null; // null: answers are free text
  error: string;         // for the user; "": none
}

export function readSchema(text: string): SchemaSetting {
  if (text.trim() === "") return { schema: null, error: "" };
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (error) {
    return { schema: null, error: `The schema is not JSON: ${reason(error)}.` };
  }
  if (typeof json !== "object" || json === null || Array.isArray(json)) return { schema: null, error: "A schema is a JSON object, such as {\"type\": \"object\"}." };
  return { schema: json, error: "" };
}

// The part of a request's body that follows from both. Throws an Error with a sentence for the user.
export function answerFields(settings: { stop: string; schema: string }): Record<string, unknown> {
  const out: Record<string, unknown> = {};
  const stop = stopStrings(settings.stop), { schema, error } = readSchema(settings.schema);
  if (error) throw new Error(`${error} Correct it in the settings, or empty the field.`);
  if (stop.length > MOST_STOPS) throw new Error(`At most ${MOST_STOPS} stop strings.`);
  if (stop.length > 0) out.stop = stop;
  if (schema) out.response_format = { type: "json_schema", json_schema: { name: "answer", schema } };
  return out;
}
