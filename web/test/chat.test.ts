// The chat's settings, library, search and first screen.
import assert from "node:assert/strict";
import { test } from "node:test";

import { answerFields, MOST_STOPS, readSchema, stopStrings } from "../src/answer_settings";
import { readFootnote, readNote, readScript } from "../src/markdown_extensions";
import { MOST_PROMPTS, nameOf, readPrompts, withPrompt } from "../src/prompts";
import { find } from "../src/search";
import { firstScreen } from "../src/starters";
import { byteLength, isLong } from "../src/text";
import { add, newConversation, path, promptWith } from "../src/tree";

test("stop strings are one a line, with escapes", () => {
  assert.deepEqual(stopStrings("END\n\\n\\n\n\na\\tb\nc\\\\n"), ["END", "\n\n", "a\tb", "c\\n"]);
  assert.deepEqual(stopStrings(""), []);
  assert.equal(stopStrings("x\n".repeat(50)).length, 50);
});

test("a schema is a JSON object, or the reason why not", () => {
  assert.deepEqual(readSchema(' {"type": "object"} '), { schema: { type: "object" }, error: "" });
  assert.deepEqual(readSchema("  "), { schema: null, error: "" });
  assert.match(readSchema('{"type":').error, /not JSON/);
  for (const wrong of ["[]", "3", "null", '"x"']) assert.match(readSchema(wrong).error, /JSON object/);
});

test("a request has the fields that are set, and none is sent with a broken schema", () => {
  assert.deepEqual(answerFields({ stop: "", schema: "" }), {});
  assert.deepEqual(answerFields({ stop: "END", schema: '{"type": "object"}' }), { stop: ["END"], response_format: { type: "json_schema", json_schema: { name: "answer", schema: { type: "object" } } } });
  assert.throws(() => answerFields({ stop: "", schema: "{" }), /Correct it in the settings/);
  assert.equal((answerFields({ stop: "x\n".repeat(MOST_STOPS), schema: "" }).stop as string[]).length, 64);
  assert.throws(() => answerFields({ stop: "x\n".repeat(MOST_STOPS + 1), schema: "" }), { message: "At most 64 stop strings." });
});

test("the library of prompts is sorted, replaces by name, and survives a damaged store", () => {
  const list = withPrompt(withPrompt([], { name: "b", text: "1" }), { name: "a", text: "2" });
  assert.deepEqual(list.map((one) => one.name), ["a", "b"]);
  assert.deepEqual(withPrompt(list, { name: "b", text: "3" }).find((one) => one.name === "b")!.text, "3");
  assert.deepEqual(readPrompts(JSON.stringify([{ name: "a", text: "1" }, { name: 3 }, null])), [{ name: "a", text: "1" }]);
  const full = Array.from({ length: MOST_PROMPTS }, (_, i) => ({ name: `prompt ${i}`, text: "x" }));
  assert.equal(withPrompt(full, { name: "one more", text: "y" }).length, MOST_PROMPTS + 1); // none is dropped silently
  for (const wrong of ["{", "3", "{}", null]) assert.deepEqual(readPrompts(wrong), []);
  assert.equal(nameOf("Be brief.\nAnd kind."), "Be brief.");
  assert.equal(nameOf("Answer every question as if a child of seven had asked it."), "Answer every question as if a child of …");
});

test("search needs every word, in the title, a message or a file, and shows the text around the first", () => {
  const c = newConversation();
  const asked = add(c, { parent: "", role: "user", content: "How does a water mill work?", files: [{ name: "mill.csv", text: "flow,head" }] });
  add(c, { parent: asked.id, role: "assistant", content: `${"x".repeat(100)} The WHEEL turns ${"y".repeat(100)}` });
  assert.equal(find(c, "wheel mill"), `… ${"x".repeat(35)} The WHEEL turns ${"y".repeat(33)} …`);
  assert.equal(find(c, "flow"), "flow,head");
  assert.equal(find(c, "wheel rabbit"), undefined);
  assert.equal(find(c, "  "), undefined);
  c.title = "Renamed";
  assert.equal(find(c, "renamed"), "");
});

test("subscripts, superscripts and footnotes are distinguished from other text", () => {
  assert.deepEqual(readScript("~2~O"), { type: "subscript", raw: "~2~", text: "2" });
  assert.deepEqual(readScript("^2^"), { type: "superscript", raw: "^2^", text: "2" });
  for (const other of ["~~deleted~~", "~a b~", "~ 2~", "~2", "^^", "^[1]^"]) assert.equal(readScript(other), undefined, other);
  assert.equal(readScript("^\u22122^ m")!.text, "\u22122");
  for (const ordinary of ["a^2+b^2=c^2", "2^10-2^8", "PATH=~/bin:~/lib", "~5-~6 km", "(^_^)"]) {
    for (let at = 0; at < ordinary.length; ++at) assert.equal(readScript(ordinary.slice(at)), undefined, ordinary);
  }
  assert.equal(readNote("[^1] and")!.label, "1");
  assert.equal(readNote("[^1]: text"), undefined);
  assert.equal(readNote("[1]"), undefined);
  assert.deepEqual(readFootnote("[^a]: One\n  two\nnext"), { type: "footnote", raw: "[^a]: One\n  two\n", label: "a", text: "One\ntwo" });
  assert.equal(readFootnote("[^a] text"), undefined);
});

test("the first screen says what a built-in model can do, and only of these", () => {
  const lab = firstScreen({ id: "millrace-lab", meta: { n_params: 4066560 } }, "{{ x }}");
  assert.equal(lab.demonstration, true);
  assert.match(lab.about, /^A 4\.1 M-parameter demonstration: /);
  assert.ok(lab.starters.length >= 3 && lab.starters.every((one) => !one.sent.includes("$")));
  assert.match(firstScreen({ id: "stories", meta: { n_params: 5475584 } }, "").about, /stories/);
  assert.equal(firstScreen({ id: "lab", meta: { n_params: 7e9 } }, "{{ x }}").demonstration, false);
  assert.equal(firstScreen({ id: "labrador", meta: { n_params: 1e6 } }, "{{ x }}").demonstration, false);
  assert.equal(firstScreen({ id: "Qwen3" }, "{{ x }}").demonstration, false);
  assert.match(firstScreen({ id: "base" }, "").about, /no chat template/);
  assert.deepEqual(firstScreen(undefined, undefined).starters, []);
});

test("the bytes of a text bound its tokens", () => {
  assert.deepEqual(["", "mill", "Mühle", "水車", "🌾"].map(byteLength), [0, 4, 6, 6, 4]);
});

test("long texts are those of many characters or lines", () => {
  assert.equal(isLong("x".repeat(1501)), true);
  assert.equal(isLong("x\n".repeat(21)), true);
  assert.equal(isLong("x\n".repeat(10)), false);
});

test("a message that is not sent yet is counted with the conversation before it", () => {
  const c = newConversation("Be kind.");
  assert.deepEqual(promptWith(c, { id: "", parent: "", role: "user", content: "Hi", created: 0 }).map((one) => one.role), ["system", "user"]);
  const hello = add(c, { parent: "", role: "user", content: "Hello" });
  add(c, { parent: hello.id, role: "assistant", content: "Hi" });
  const all = promptWith(c, { id: "", parent: path(c).at(-1)!.id, role: "user", content: "More", created: 0 });
  assert.deepEqual(all.map((one) => one.content), ["Be kind.", "Hello", "Hi", "More"]);
  assert.equal(path(c).length, 2);
});
