// Reads a stream of JSON lines (application/x-ndjson) from chunks that may be split anywhere.

export class LineParser {
  private rest = "";

  feed(text: string): unknown[] {
    const lines = (this.rest + text).split("\n");
    this.rest = lines.pop() ?? "";
    return lines.filter((line) => line.trim() !== "").map((line) => JSON.parse(line) as unknown);
  }
}

export async function readLines(response: Response, take: (line: unknown) => void): Promise<void> {
  const reader = response.body!.getReader();
  const decoder = new TextDecoder();
  const parser = new LineParser();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    for (const line of parser.feed(decoder.decode(value, { stream: true }))) take(line);
  }
}
