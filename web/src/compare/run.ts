// Runs a comparison on the server, and reports its progress.
import { ask, postJson } from "../api";
import { readEvents } from "../sse";
import { readResultJson, type Result } from "./result";

export interface ComparisonBody {
  model: string;
  base: string;
  with: string[];
  suites: string[];
  text?: string;
  items?: number;
  repeat?: number;
  prompt?: number;
  generate?: number;
}

export interface Finished {
  result: Result;
  source: string; // JSON, as `millrace compare --json` writes it
}

// Throws an Error with a sentence for the user; an AbortError once `signal` is aborted.
export async function runComparison(body: ComparisonBody, signal: AbortSignal, progress: (part: string, fraction: number) => void): Promise<Finished> {
  const response = await ask("/compare", { ...postJson(body), signal });
  let finished: Finished | null = null;
  await readEvents(response, ({ event, data }) => {
    const json = JSON.parse(data) as { part?: string; fraction?: number; message?: string };
    if (event === "progress") progress(json.part ?? "", json.fraction ?? 0);
    if (event === "error") throw new Error(json.message ?? "The comparison failed.");
    if (event === "result") finished = { result: readResultJson(json), source: JSON.stringify(json, null, 2) };
  });
  if (!finished) throw new Error("The connection was lost, which ended the comparison. Run it again.");
  return finished;
}
