// Whether the server answers. Once it does not, the page asks for its health until it is back.
import { healthy, onUnreachable } from "./api";

const FIRST_WAIT = 500; // ms, doubled up to LONGEST_WAIT
const LONGEST_WAIT = 4000;

let back: Promise<void> | null = null; // while the server is away
let tell: (away: boolean) => void = () => undefined;

export const isAway = (): boolean => back !== null;

async function waitForServer(): Promise<void> {
  tell(true);
  for (let wait = FIRST_WAIT; ; wait = Math.min(wait * 2, LONGEST_WAIT)) {
    await new Promise((resolve) => setTimeout(resolve, wait));
    if (await healthy()) break;
  }
  back = null;
  tell(false);
}

// Resolves when the server answers again; at once where it was never away.
export function serverBack(): Promise<void> {
  return back ?? Promise.resolve();
}

export function watchConnection(changed: (away: boolean) => void): void {
  tell = changed;
  onUnreachable(() => (back ??= waitForServer()));
}
