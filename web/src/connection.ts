// Tracks whether the server responds. Once it does not, polls /health until it is back.
import { healthy, onUnreachable } from "./api";

const FIRST_WAIT = 500; // ms, doubled up to LONGEST_WAIT
const LONGEST_WAIT = 4000;

let back: Promise<void> | null = null; // set while the server is unreachable
let report: (away: boolean) => void = () => undefined;

export const isAway = (): boolean => back !== null;

async function waitForServer(): Promise<void> {
  report(true);
  for (let wait = FIRST_WAIT; ; wait = Math.min(wait * 2, LONGEST_WAIT)) {
    await new Promise((resolve) => setTimeout(resolve, wait));
    if (await healthy()) break;
  }
  back = null;
  report(false);
}

// Resolves when the server responds again; immediately if it is reachable.
export function serverBack(): Promise<void> {
  return back ?? Promise.resolve();
}

export function watchConnection(changed: (away: boolean) => void): void {
  report = changed;
  onUnreachable(() => (back ??= waitForServer()));
}
