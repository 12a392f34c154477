// The parts of the page that need no browser.
import assert from "node:assert/strict";
import { test } from "node:test";

import { EventParser } from "../src/sse";
import { surplus } from "../src/store";
import { plain, readMath, safeLink } from "../src/text";
import { add, children, newConversation, path, place, prompt, readConversation, said, turn, type Conversation } from "../src/tree";

test("events are parsed correctly from chunks of any size", () => {
  const source = 'event: snapshot\r\ndata: {"a":1}\r\n\r\n: ping\n\nid: 81\ndata: one\ndata: two\n\ndata:[DONE]\n\n';
  const expected = [{ event: "snapshot", data: '{"a":1}', id: "" }, { event: "", data: "one\ntwo", id: "81" }, { event: "", data: "[DONE]", id: "" }];
  for (let size = 1; size <= source.length; ++size) {
    const parser = new EventParser();
    const events = [];
    for (let at = 0; at < source.length; at += size) events.push(...parser.feed(source.slice(at, at + size)));
    assert.deepEqual(events, expected, `pieces of ${size}`);
  }
});

test("an incomplete event is not emitted", () => {
  const parser = new EventParser();
  assert.deepEqual(parser.feed("data: half"), []);
  assert.deepEqual(parser.feed("\n"), []);
  assert.deepEqual(parser.feed("\n"), [{ event: "", data: "half", id: "" }]);
});

const talk = (): { c: Conversation; hello: string; hi: string } => {
  const c = newConversation("Be kind.");
  const hello = add(c, { parent: "", role: "user", content: "Hello" });
  const hi = add(c, { parent: hello.id, role: "assistant", content: "Hi" });
  return { c, hello: hello.id, hi: hi.id };
};
const shown = (c: Conversation): string => path(c).map((message) => message.content).join(" / ");

test("regenerating adds a sibling and keeps both", () => {
  const { c, hello, hi } = talk();
  const other = add(c, { parent: hello, role: "assistant", content: "Good day" });
  assert.equal(shown(c), "Hello / Good day");
  assert.deepEqual(place(c, other), { index: 1, count: 2 });
  assert.equal(turn(c, other, -1), true);
  assert.equal(shown(c), "Hello / Hi");
  assert.equal(turn(c, c.messages[hi]!, -1), false);
  assert.equal(shown(c), "Hello / Hi");
  assert.equal(turn(c, c.messages[hi]!, 1), true);
  assert.equal(shown(c), "Hello / Good day");
});

test("editing the first message adds a second root with its own continuation", () => {
  const { c, hello } = talk();
  const edited = add(c, { parent: "", role: "user", content: "Hello there" });
  assert.equal(shown(c), "Hello there");
  add(c, { parent: edited.id, role: "assistant", content: "General" });
  assert.equal(shown(c), "Hello there / General");
  turn(c, edited, -1);
  assert.equal(shown(c), "Hello / Hi");
  assert.equal(children(c, "").length, 2);
  assert.equal(c.messages[hello]!.content, "Hello");
});

test("the prompt is the system prompt and the path up to the message", () => {
  const { c, hello, hi } = talk();
  assert.deepEqual(prompt(c, c.messages[hello]!), [{ role: "system", content: "Be kind." }, { role: "user", content: "Hello" }]);
  assert.equal(prompt(c, c.messages[hi]!).length, 3);
  c.system = "  ";
  assert.deepEqual(prompt(c, c.messages[hello]!), [{ role: "user", content: "Hello" }]);
});

test("a file is sent in a fence that its text cannot close", () => {
  const { c } = talk();
  const message = add(c, { parent: "", role: "user", content: "See", files: [{ name: "a.md", text: "````\ncode\n````" }] });
  assert.equal(said(message), "File a.md:\n`````\n````\ncode\n````\n`````\n\nSee");
});

test("a conversation survives export and import", () => {
  const { c, hello } = talk();
  add(c, { parent: hello, role: "assistant", content: "Good day" });
  const read = readConversation(JSON.parse(JSON.stringify(c)))!;
  assert.notEqual(read.id, c.id);
  assert.equal(read.system, "Be kind.");
  assert.equal(shown(read), "Hello / Good day");
  assert.equal(children(read, hello).length, 2);
});

test("invalid conversations are refused, and unreachable messages are dropped", () => {
  for (const wrong of [null, 7, "x", {}, { messages: 3 }, { messages: {} }, { messages: { a: { id: "a", role: "system", content: "" } } }]) {
    assert.equal(readConversation(wrong), null);
  }
  const circle = { messages: { a: { id: "a", parent: "b", role: "user", content: "a" }, b: { id: "b", parent: "a", role: "user", content: "b" }, c: { id: "c", parent: "", role: "user", content: "c" } }, selected: { "": "a" } };
  const read = readConversation(circle)!;
  assert.deepEqual(Object.keys(read.messages), ["c"]);
  assert.equal(shown(read), "c");
  const proto = JSON.parse('{"messages": {"x": {"id": "__proto__", "parent": "", "role": "user", "content": "p"}}}');
  assert.equal(shown(readConversation(proto)!), "p");
  assert.equal(({} as Record<string, unknown>).content, undefined);
});

test("storage is bounded: the oldest conversations are removed, the newest stays", () => {
  const all = [5, 4, 3, 2, 1].map((updated) => ({ id: String(updated), title: "", updated, size: 10 }));
  assert.deepEqual(surplus(all, 3, 1000).map((one) => one.id), ["2", "1"]);
  assert.deepEqual(surplus(all, 100, 25).map((one) => one.id), ["3", "2", "1"]);
  assert.deepEqual(surplus([{ id: "a", title: "", updated: 1, size: 99 }], 3, 10), []);
});

test("formulas are distinguished from prices", () => {
  assert.equal(readMath("$a_b$ is", false)?.text, "a_b");
  assert.equal(readMath("$5 and $6", false), undefined);
  assert.equal(readMath("$ 5 $", false), undefined);
  assert.equal(readMath("$$\nx^2\n$$", true)?.display, true);
  assert.equal(readMath("\\(x\\)", false)?.text, "x");
  assert.equal(readMath("\\[x\\]", true)?.text, "x");
  assert.equal(readMath("$a", false), undefined);
});

test("only http, https and mailto links are allowed", () => {
  assert.equal(safeLink("https://example.org/a"), "https://example.org/a");
  assert.equal(safeLink("mailto:a@example.org"), "mailto:a@example.org");
  for (const wrong of ["javascript:alert(1)", " javascript:alert(1)", "JaVaScRiPt:alert(1)", "java\nscript:alert(1)", "data:text/html,x", "vbscript:x", "/v1/models", "file:///etc/passwd", "blob:x"]) {
    assert.equal(safeLink(wrong), null, wrong);
  }
});

test("character references are decoded", () => {
  assert.equal(plain("a &lt;b&gt; &amp; &#65;&#x42; &nope; &#0;"), "a <b> & AB &nope; &#0;");
});

test("omitted messages are not sent, except to regenerate earlier ones", () => {
  const { c, hello, hi } = talk();
  const then = add(c, { parent: hi, role: "user", content: "And now?" });
  c.since = then.id;
  assert.deepEqual(prompt(c, then).map((one) => one.content), ["Be kind.", "And now?"]);
  assert.deepEqual(prompt(c, c.messages[hello]!).map((one) => one.content), ["Be kind.", "Hello"]);
  c.since = "gone";
  assert.equal(prompt(c, then).length, 4);
});
