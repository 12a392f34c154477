// Reads the feed at /live into a view, until the returned function is called. Reconnects when the feed ends.
import { ask } from "../api";
import { readEvents } from "../sse";
import { reason } from "../text";

export interface FeedView {
  take(event: string, data: string): void;
  say(text: string): void; // the state of the feed
  opened?(): void;         // the feed is connected; its first event may follow much later
}

const FIRST_WAIT = 500, LONGEST_WAIT = 8000; // ms

// `model`: its name; "": the server's first; "*": all loaded ones.
export function follow(model: string, view: FeedView): () => void {
  const over = new AbortController();
  let wait = FIRST_WAIT;
  const run = async (): Promise<void> => {
    while (!over.signal.aborted) {
      try {
        const response = await ask(`/live?model=${encodeURIComponent(model)}`, { signal: over.signal });
        wait = FIRST_WAIT;
        view.opened?.();
        await readEvents(response, ({ event, data }) => view.take(event, data));
        view.say("Reconnecting: the feed ended.");
      } catch (error) {
        if (over.signal.aborted) return;
        view.say(`Reconnecting: ${reason(error)}`);
      }
      await new Promise((resolve) => setTimeout(resolve, wait));
      wait = Math.min(wait * 2, LONGEST_WAIT);
    }
  };
  void run();
  return () => over.abort();
}
