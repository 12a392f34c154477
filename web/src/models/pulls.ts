// Downloads that this page has started. They continue while another view is shown, and end with the page.
import { ask, postJson } from "../api";
import { readLines } from "../lines";
import { reason } from "../text";

export interface Pull {
  name: string;
  status: string;
  completed: number; // bytes
  total: number;     // 0: unknown
  over: "" | "done" | "failed" | "cancelled";
  cancel(): void;
}

interface ProgressJson {
  status?: string;
  error?: string;
  total?: number;
  completed?: number;
}

export const pulls: Pull[] = [];
let changed: () => void = () => undefined;

export function onPullsChange(report: () => void): void {
  changed = report;
}

// Returns true once the model is on the server's machine.
export async function pull(name: string): Promise<boolean> {
  const abort = new AbortController();
  const one: Pull = { name, status: "Asking the hub", completed: 0, total: 0, over: "", cancel: () => abort.abort() };
  pulls.unshift(one);
  changed();
  try {
    const response = await ask("/api/pull", { ...postJson({ model: name }), signal: abort.signal });
    await readLines(response, (line) => {
      const now = line as ProgressJson;
      if (now.error) throw new Error(now.error);
      one.completed = now.completed ?? one.completed;
      one.total = now.total ?? one.total;
      one.status = now.status ?? one.status;
      if (now.status === "success") one.over = "done";
      changed();
    });
    if (!one.over) throw new Error("The connection was lost. Download the model again: it continues where it stopped.");
  } catch (error) {
    one.over = abort.signal.aborted ? "cancelled" : "failed";
    one.status = abort.signal.aborted ? "Cancelled. Downloading it again continues where it stopped." : reason(error);
  }
  changed();
  return one.over === "done";
}

export function forget(one: Pull): void {
  const at = pulls.indexOf(one);
  if (at >= 0) pulls.splice(at, 1);
  changed();
}
