// Parses server-sent events from text chunks that may be split anywhere.

export interface ServerEvent {
  event: string; // "" if unnamed
  data: string;
  id: string;    // of this event; "" if none
}

export class EventParser {
  private rest = "";
  private event = "";
  private data: string[] = [];
  private id = "";

  feed(text: string): ServerEvent[] {
    const events: ServerEvent[] = [];
    const lines = (this.rest + text).split("\n");
    this.rest = lines.pop() ?? "";
    for (const raw of lines) {
      const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
      if (line === "") {
        if (this.data.length > 0) events.push({ event: this.event, data: this.data.join("\n"), id: this.id });
        this.event = "";
        this.data = [];
        this.id = "";
        continue;
      }
      const colon = line.indexOf(":");
      if (colon === 0) continue; // a comment, sent as keep-alive
      const name = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (name === "event") this.event = value;
      if (name === "data") this.data.push(value);
      if (name === "id") this.id = value;
    }
    return events;
  }
}

// Reads until the stream ends, `take` returns false, or the request is aborted.
export async function readEvents(response: Response, take: (event: ServerEvent) => boolean | void): Promise<void> {
  const reader = response.body!.getReader();
  const decoder = new TextDecoder();
  const parser = new EventParser();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    for (const event of parser.feed(decoder.decode(value, { stream: true }))) {
      if (take(event) !== false) continue;
      await reader.cancel();
      return;
    }
  }
}
