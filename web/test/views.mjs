// The first screen, the chat's settings, the models view, the live view of several models, and comparisons.
//
//   node test/views.mjs MILLRACE [PICTURES [WORDS]]     as browser.mjs

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { base, fakeAnswer, field, finished, last, pictures, reader, run, say, serve, shoot, test, until } from "./driver.mjs";

const store = mkdtempSync(join(tmpdir(), "millrace-page-store-"));
process.on("exit", () => rmSync(store, { recursive: true, force: true }));
process.env.MILLRACE_MODELS = process.env.HF_HOME = store; // of `--store`
const both = await serve("-m", "lab", "--store"); // stories and lab

const choose = (page, model) => page.getByRole("combobox", { name: "Model", exact: true }).selectOption(model);
const chosen = (page) => page.getByRole("combobox", { name: "Model", exact: true }).inputValue();
const HELD = { delay: 450 }; // ms that a button is held down: the feed sends at least two events meanwhile
// The names in the page's list of models, once the server's answer has filled it.
const names = async (page) => {
  const options = page.getByRole("combobox", { name: "Model", exact: true }).locator("option");
  await options.first().waitFor({ state: "attached" });
  return options.allInnerTexts();
};

test("the first screen says what the model is, and its starters are answered well", async () => {
  const { page, check } = await reader({}, both);
  await page.getByText(/M-parameter demonstration: it continues simple stories/).waitFor();
  const lab = (await names(page)).find((name) => name.includes("lab"));
  await choose(page, lab);
  await page.getByText(/M-parameter demonstration: it finds facts/).waitFor();
  await page.getByText("millrace serve qwen3:0.6b").waitFor();
  await page.locator(".start math").waitFor();
  const expected = [/5956/, /159/, /"name":\s*"Milorona Betoshal"/, /apple cat drum pear toad/];
  const starters = page.locator(".start");
  assert.equal(await starters.count(), expected.length);
  await shoot(page, "first-screen");
  if (pictures) {
    const size = page.viewportSize();
    await page.emulateMedia({ colorScheme: "dark" });
    await page.evaluate(() => document.activeElement.blur());
    await page.setViewportSize({ width: 375, height: 740 });
    await shoot(page, "phone-dark");
    await page.setViewportSize(size);
    await page.emulateMedia({ colorScheme: "light" });
  }
  for (let i = 0; i < expected.length; ++i) {
    await starters.nth(i).click();
    await finished(page);
    assert.match(await last(page).locator(".markdown").innerText(), expected[i]);
    await page.getByRole("button", { name: "New conversation" }).click();
  }
  check();
});

test("a JSON Schema and stop strings are sent, and a broken schema is not", async () => {
  const { page, check } = await reader();
  await page.getByRole("button", { name: "Generation settings" }).click();
  await page.getByLabel("Stop strings").fill("END\n\\n\\n");
  await page.getByLabel("JSON Schema").fill('{"type": ');
  await page.getByText(/The schema is not JSON/).waitFor();
  await say(page, "One");
  await last(page).getByText(/input\. Correct it in the settings/).waitFor();
  const schema = { type: "object", properties: { mill: { enum: ["wind", "water"] } }, required: ["mill"], additionalProperties: false };
  await page.getByLabel("JSON Schema").fill(JSON.stringify(schema));
  await page.getByText("Answers are JSON that matches it.").waitFor();
  const sent = page.waitForRequest("**/v1/chat/completions");
  await say(page, "Two");
  const body = (await sent).postDataJSON();
  assert.deepEqual(body.stop, ["END", "\n\n"]);
  assert.deepEqual(body.response_format, { type: "json_schema", json_schema: { name: "answer", schema } });
  await finished(page);
  assert.match(JSON.parse(await last(page).locator(".markdown").innerText()).mill, /^(wind|water)$/);
  await shoot(page, "settings");
  check();
});

test("system prompts are saved, chosen and deleted", async () => {
  const { page, check } = await reader();
  const open = () => page.getByRole("button", { name: "Generation settings" }).click();
  await open();
  await page.getByLabel("System prompt", { exact: true }).fill("Be brief.");
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.getByLabel("Name of the system prompt").fill("Brief");
  await page.getByLabel("Name of the system prompt").press("Enter");
  await page.getByLabel("System prompt", { exact: true }).fill("");
  await page.reload();
  await field(page).waitFor();
  await open();
  const saved = page.getByRole("combobox", { name: "Saved system prompts" });
  await saved.selectOption("Brief");
  assert.equal(await page.getByLabel("System prompt", { exact: true }).inputValue(), "Be brief.");
  const sent = page.waitForRequest("**/v1/chat/completions");
  await say(page, "Once");
  assert.deepEqual((await sent).postDataJSON().messages[0], { role: "system", content: "Be brief." });
  await page.locator(".panel").getByRole("button", { name: "Delete", exact: true }).click();
  assert.equal(await saved.isDisabled(), true);
  assert.equal(await page.evaluate(() => document.activeElement.id), "system");
  // A full library refuses another prompt, and keeps what it has.
  await page.evaluate(() => localStorage.setItem("millrace.prompts", JSON.stringify(Array.from({ length: 200 }, (_, i) => ({ name: `prompt ${i}`, text: `text ${i}` })))));
  await page.getByLabel("System prompt", { exact: true }).fill("One more.");
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.getByLabel("Name of the system prompt").press("Enter");
  await page.getByText("The library is full: delete one of its 200 prompts first.").waitFor();
  assert.equal(await page.evaluate(() => JSON.parse(localStorage.getItem("millrace.prompts")).filter((one) => /^prompt/.test(one.name)).length), 200);
  check();
});

test("conversations are found by the words in them", async () => {
  const { page, check } = await reader();
  for (const [question, answer] of [["Where does the miller live?", "By the river Tarn."], ["What is bread made of?", "Of flour."]]) {
    await fakeAnswer(page, [{ content: answer }]);
    await say(page, question);
    await finished(page);
    await page.unroute("**/v1/chat/completions");
    await page.getByRole("button", { name: "New conversation" }).click();
  }
  await page.locator("body").click({ position: { x: 700, y: 300 } });
  await page.keyboard.press("f");
  await page.keyboard.type("tarn miller");
  const shown = page.locator(".conversations");
  await shown.getByText("1 conversation found").waitFor();
  await page.locator("[aria-live]").getByText("1 conversation found").waitFor({ state: "attached" });
  await shoot(page, "search");
  await page.getByRole("button", { name: /Where does the miller live\? .*Tarn/ }).click();
  await page.locator(".said").getByText("Where does the miller live?").waitFor();
  await page.getByRole("searchbox").fill("rabbit");
  await shown.getByText("No conversation contains these words.").waitFor();
  await page.getByRole("searchbox").press("Escape");
  await page.getByRole("button", { name: "What is bread made of?", exact: true }).waitFor();
  // Escape ends a search that waits for its pause.
  await page.getByRole("searchbox").fill("rabbit");
  await page.getByRole("searchbox").press("Escape");
  await page.waitForTimeout(500);
  await page.getByRole("button", { name: "What is bread made of?", exact: true }).waitFor({ timeout: 1000 });
  check();
});

const paste = (page, text) => field(page).evaluate((node, pasted) => {
  const data = new DataTransfer();
  data.setData("text/plain", pasted);
  node.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
}, text);

test("a long paste becomes a chip, a long message is folded, and one that is too long is said to be so", async () => {
  const { page, check } = await reader();
  const text = "The wheel turns by the river.\n".repeat(30);
  await paste(page, text);
  await page.locator(".chip").getByText("pasted-1.txt").waitFor();
  assert.equal(await field(page).inputValue(), "");
  await page.getByRole("button", { name: "Put pasted-1.txt into the message" }).click();
  assert.equal(await field(page).inputValue(), text);
  await fakeAnswer(page, [{ content: "Yes." }]);
  await field(page).press("Enter");
  await finished(page);
  const all = page.getByRole("button", { name: /^Show all/ });
  const height = () => page.locator(".said").evaluate((node) => node.clientHeight);
  const folded = await height();
  await all.click();
  assert.ok((await height()) > folded);
  await page.getByRole("button", { name: "Show less" }).click();
  assert.equal(await height(), folded);
  await paste(page, text.repeat(20));
  const warning = page.locator(".composer-warning");
  await warning.getByText(/^Too long: .*tokens, and .* reads 1,024/).waitFor();
  await shoot(page, "too-long");
  await page.getByRole("button", { name: "Remove pasted-1.txt" }).click();
  await warning.waitFor({ state: "hidden" });
  await paste(page, "The mill.\n".repeat(500_000));
  await page.getByText("pasted-1.txt is larger than 512 KiB.").waitFor();
  assert.equal(await page.locator(".chip").count(), 0);
  check();
});

test("the warning follows the selected model and the shown conversation", async () => {
  const { page, check } = await reader({}, both);
  await until("the models are listed", async () => (await names(page)).length === 2);
  const [stories, lab] = ["stories", "lab"].map((part) => names(page).then((list) => list.find((name) => name.includes(part))));
  const context = async (name) => (await (await fetch(`${both}/v1/models`)).json()).data.find((one) => one.id === name).max_model_len;
  const [small, large] = [await context(await stories), await context(await lab)];
  assert.ok(small < large, `${small} < ${large}`);
  await choose(page, await stories);
  await field(page).fill("1 ".repeat(small));
  const warning = page.locator(".composer-warning");
  await warning.getByText(/^Too long/).waitFor();
  await page.route("**/v1/models", async (route) => {
    const response = await route.fetch(), json = await response.json();
    for (const one of json.data) if (one.id.includes("lab")) one.max_model_len = 100_000;
    await route.fulfill({ response, json });
  });
  await choose(page, await lab);
  await warning.waitFor({ state: "hidden" });
  // Together with the conversation the draft is too long; alone it is not.
  await choose(page, await stories);
  const part = "1 ".repeat(Math.floor(small * 0.3));
  await fakeAnswer(page, [{ content: "Yes." }]);
  await say(page, part);
  await finished(page);
  await field(page).fill(part);
  await warning.getByText(/^Too long: with the conversation/).waitFor();
  await page.getByRole("button", { name: "New conversation" }).click();
  assert.notEqual(await field(page).inputValue(), "");
  await warning.waitFor({ state: "hidden" });
  check();
});

test("subscripts, footnotes, directions, and tables that scroll on a phone", async () => {
  const { page, check } = await reader({ viewport: { width: 375, height: 740 }, hasTouch: true, isMobile: true });
  await fakeAnswer(page, [{ content: "Water is H~2~O[^1], ~~not~~ x^2^.\n\n| flow of the river | head of the fall | power of the wheel |\n|---|---|---|\n| 0.5 cubic metres | 3 metres | 11.8 kilowatts |\n\nשלום עולם\n\n[^1]: As *everyone* knows.\n" }]);
  await say(page, "What is water?");
  await finished(page);
  const answer = last(page);
  assert.equal(await answer.locator("sub").innerText(), "2");
  assert.equal(await answer.locator("del").innerText(), "not");
  assert.equal(await answer.locator("p").filter({ hasText: "שלום" }).evaluate((node) => getComputedStyle(node).direction), "rtl");
  await until("the footnote has the focus", async () => { // the answer may be drawn once more, as a whole, meanwhile
    await answer.getByRole("button", { name: "Footnote 1" }).click();
    return answer.getByRole("note", { name: "Footnote 1" }).evaluate((node) => node === document.activeElement);
  });
  assert.equal(await answer.getByRole("note", { name: "Footnote 1" }).innerText(), "1 As everyone knows.");
  const table = answer.locator(".table");
  assert.ok(await table.evaluate((node) => node.scrollWidth > node.clientWidth));
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth));
  await shoot(page, "markdown-phone");
  check();
});

test("models are listed with their size, unloaded and loaded", async () => {
  const { page, check } = await reader({}, both);
  await page.getByRole("link", { name: "Models" }).click();
  await page.getByText("2 models, 2 loaded").waitFor();
  await page.getByText(/^The server uses .* of .* free$/).waitFor();
  const lab = (await names(page)).find((name) => name.includes("lab"));
  const focused = () => page.evaluate(() => `${document.activeElement.tagName} ${document.activeElement.textContent}`);
  await page.getByRole("button", { name: `Unload ${lab}` }).press("Enter");
  await page.getByText("2 models, 1 loaded").waitFor();
  await until("the focus is on the model's name, because its button is gone", async () => (await focused()) === `H2 ${lab}`);
  await page.evaluate(() => document.activeElement.blur());
  await shoot(page, "models-light");
  await page.getByRole("button", { name: `Load ${lab}` }).click();
  await page.getByText("2 models, 2 loaded").waitFor();
  assert.equal(await page.getByRole("button", { name: /^Delete/ }).count(), 0); // they are in the binary
  await page.getByRole("button", { name: `Chat with it ${lab}` }).click();
  await page.getByRole("heading", { level: 1, name: lab }).waitFor();
  check();
});

test("a model of the store is deleted, after a confirmation", async () => {
  const { page, check } = await reader({}, both);
  const created = await fetch(`${both}/api/create`, { method: "POST", body: JSON.stringify({ model: "mine", from: "stories", stream: false }) });
  assert.equal(created.status, 200);
  await page.getByRole("link", { name: "Models" }).click();
  await page.getByText(/^3 models/).waitFor();
  await page.getByRole("button", { name: "Delete mine" }).click();
  const sure = page.getByRole("group", { name: "Delete mine?" });
  await sure.getByRole("button", { name: "Keep mine" }).click();
  await page.getByRole("button", { name: "Delete mine" }).click();
  let proceed;
  const checked = new Promise((resolve) => (proceed = resolve));
  await page.route("**/api/delete", (route) => checked.then(() => route.continue()));
  await sure.getByRole("button", { name: "Delete mine" }).click();
  await page.getByRole("button", { name: "Load mine" }).and(page.locator("[aria-disabled=true]")).waitFor(); // not "Loading …"
  proceed();
  await page.getByText(/^2 models/).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.tagName), "H2");
  const left = (await (await fetch(`${both}/models`)).json()).data.map((one) => one.id);
  assert.equal(left.includes("mine"), false);
  check();
});

test("without a store, the models view says how to start a server that downloads", async () => {
  const { page, check } = await reader();
  await page.goto(`${base}/#models`);
  await page.getByText(/millrace serve --store/).waitFor();
  assert.equal(await page.getByLabel("Download a model").isDisabled(), true);
  check();
});

test("what is typed in a view stays while the page still waits for the server's first answers", async () => {
  const { page, context, check } = await reader({}, both);
  let release;
  const released = new Promise((resolve) => (release = resolve));
  await context.route("**/openapi.json", (route) => released.then(() => route.continue())); // asked once, at the start
  await page.goto("about:blank");
  await page.goto(both);
  await page.locator(".tabs").getByRole("link", { name: "Models" }).click();
  const name = page.getByLabel("Download a model");
  await name.fill("nothing");
  release();
  await page.getByText(/^The server uses .* free$/).waitFor();
  await page.locator("select option").first().waitFor({ state: "attached" }); // the page has started
  await new Promise((resolve) => setTimeout(resolve, 200));
  assert.equal(await name.inputValue(), "nothing");
  check();
});

test("a download shows its progress, can be cancelled, and reports the server's error", async () => {
  const { page, check } = await reader({}, both);
  await page.goto(`${both}/#models`);
  const name = page.getByLabel("Download a model");
  await name.fill("nothing");
  await name.press("Enter");
  await page.getByText(/name one as hf\.co\/OWNER\/NAME:QUANT/).waitFor();
  await page.getByRole("button", { name: "Remove nothing from the list" }).click();
  let hold;
  await page.route("**/api/pull", (route) => new Promise((resolve) => (hold = () => resolve(route.abort()))));
  await name.fill("somebody/something");
  await name.press("Enter");
  await page.getByRole("progressbar", { name: "Download of somebody/something" }).waitFor();
  await page.locator(".tabs").getByRole("link", { name: "Chat" }).click();
  await page.getByRole("link", { name: "Models" }).click();
  await page.getByRole("button", { name: "Cancel the download of somebody/something" }).click();
  await page.getByText(/^Cancelled\./).waitFor();
  hold();
  await page.unroute("**/api/pull");
  await page.route("**/api/pull", (route) => route.fulfill({ contentType: "application/x-ndjson", body: '{"status":"pulling x","total":2000,"completed":700}\n{"status":"success"}\n' }));
  await name.fill("other/model");
  await name.press("Enter");
  await page.getByText("Downloaded", { exact: true }).waitFor();
  // A row stays while its progress changes: the focus, and a press of its button, are not lost.
  await page.evaluate(() => {
    const real = window.fetch;
    window.fetch = (url, init) => {
      if (!String(url).endsWith("/api/pull")) return real(url, init);
      let completed = 0, timer;
      const body = new ReadableStream({
        start(controller) {
          timer = setInterval(() => controller.enqueue(new TextEncoder().encode(`{"status":"pulling x","total":2000,"completed":${(completed += 1)}}\n`)), 30);
          init.signal.addEventListener("abort", () => {
            clearInterval(timer);
            controller.error(new DOMException("aborted", "AbortError"));
          });
        },
      });
      return Promise.resolve(new Response(body));
    };
  });
  await name.fill("slow/model");
  await name.press("Enter");
  const cancel = page.getByRole("button", { name: "Cancel the download of slow/model" });
  await cancel.focus();
  const bar = page.getByRole("progressbar", { name: "Download of slow/model" });
  const before = await bar.evaluate((node) => node.value);
  await until("the bar moves", async () => (await bar.evaluate((node) => node.value)) > before);
  assert.equal(await cancel.evaluate((node) => node === document.activeElement), true);
  await cancel.click({ delay: 150 });
  await page.locator(".models-pull").filter({ hasText: "slow/model" }).getByText(/^Cancelled\./).waitFor();
  assert.equal(await page.getByRole("button", { name: "Remove slow/model from the list" }).evaluate((node) => node === document.activeElement), true);
  check();
});

test("the models view asks for the admin key where one is set", async () => {
  const address = await serve("-m", "lab", "--api-key", "secret");
  const { page, check } = await reader({}, address);
  await page.getByLabel("API key").fill("secret");
  await page.getByLabel("API key").press("Enter");
  await page.getByRole("heading", { level: 1, name: /stories/ }).waitFor();
  await page.getByRole("link", { name: "Models" }).click();
  await page.getByRole("button", { name: /^Unload .*lab/ }).click();
  await page.getByText("2 models, 1 loaded").waitFor();
  check();
});

test("the live view follows the selected model, and can show all", async () => {
  const { page, check } = await reader({}, both);
  const [stories, lab] = ["stories", "lab"].map((part) => (list) => list.find((name) => name.includes(part)));
  const list = await until("the models are listed", async () => {
    const now = await names(page);
    return now.length === 2 && now;
  });
  await page.goto(`${both}/#live`);
  await page.locator(".feed-state").getByText(stories(list)).waitFor();
  await choose(page, lab(list));
  await page.locator(".feed-state").getByText(lab(list)).waitFor();
  await page.getByRole("button", { name: "All models" }).click();
  for (const name of list) await page.getByRole("rowheader", { name }).waitFor();
  await page.getByText(/2 of 2 models loaded/).waitFor();
  await shoot(page, "live-all");
  const row = page.getByRole("button", { name: stories(list), exact: true });
  await row.focus();
  await page.waitForTimeout(HELD.delay);
  assert.equal(await row.evaluate((node) => node === document.activeElement), true);
  assert.equal(await chosen(page), lab(list));
  await row.click(HELD);
  await page.locator(".feed-state").getByText(stories(list)).waitFor();
  assert.equal(await chosen(page), stories(list));
  // Models that are unloaded leave the list, without an event of the feed.
  await page.getByRole("button", { name: "All models" }).click();
  for (const name of list) await page.getByRole("rowheader", { name }).waitFor();
  const change = (verb, model) => fetch(`${both}/models/${verb}`, { method: "POST", body: JSON.stringify({ model }) });
  await change("unload", lab(list));
  await page.getByText(/1 of 2 models loaded/).waitFor();
  await change("unload", stories(list));
  await page.getByText("No model is loaded.").waitFor();
  assert.equal(await page.getByRole("rowheader").count(), 0);
  for (const name of list) await change("load", name);
  await page.getByText(/2 of 2 models loaded/).waitFor();
  check();
});

test("a comparison is built from the registry, run, and shown as plot and table", async () => {
  const { page, check } = await reader({ viewport: { width: 1280, height: 1000 } });
  await page.goto(`${base}/#compare`);
  const first = page.getByRole("region", { name: "Configuration 1" });
  await first.getByRole("button", { name: "Add a technique" }).click();
  const added = first.locator(".part").last();
  await added.getByLabel("Family").selectOption({ label: "Token evictor" });
  await first.locator(".part").last().locator(".part-member").selectOption("streamingllm");
  await first.locator(".part").last().locator("summary").click();
  const families = (part) => part.getByLabel("Family").locator("option:disabled").allInnerTexts();
  assert.deepEqual(await families(first.locator(".part").first()), ["Token evictor"]); // each family occurs once
  assert.deepEqual(await families(first.locator(".part").last()), ["KV cache format"]);
  const window = first.getByRole("group", { name: /Token evictor/ }).getByLabel("window", { exact: true });
  await window.fill("-3");
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await page.getByText(/window must be at least/).waitFor();
  await window.fill("60");
  await first.getByText("kv_format=q8_0 + evictor=streamingllm:window=60").waitFor();
  for (const box of await page.locator(".suite input[type=checkbox]").all()) await box.setChecked(false);
  await page.locator("#suite-perplexity").check();
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await page.getByText("perplexity needs a text: choose one.").waitFor();
  await page.locator(".compare-text input[type=file]").setInputFiles({ name: "story.txt", mimeType: "text/plain", buffer: Buffer.from("Once upon a time there was a mill by a river. The wheel turned and the miller was glad. ".repeat(60)) });
  await page.getByText("story.txt").waitFor();
  for (const [name, value] of [["Items per suite", 2], ["Rounds of timing", 1], ["Prompt tokens", 16], ["Answer tokens", 4]]) await page.getByLabel(name).fill(String(value));
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await page.getByText("Finished.").waitFor();
  assert.equal(await page.locator(".compare-table tbody tr").count(), 2);
  assert.match(await page.locator(".compare-table").innerText(), /perplexity[\s\S]*plain[\s\S]*kv_format=q8_0/);
  await page.locator(".compare-chart canvas").waitFor();
  const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Save as JSON" }).click()]);
  await shoot(page, "compare");
  await page.reload();
  await page.locator(".compare-result input[type=file]").setInputFiles(await file.path());
  await page.locator(".compare-table tbody tr").nth(1).waitFor();
  assert.equal(await page.locator(".compare-table tbody tr").count(), 2);
  check();
});

// Draws a picture of docs/page.md, and is run only if pictures are wanted.
if (pictures) test("five configurations of the model lab", async () => {
  const { page, check } = await reader({ viewport: { width: 1280, height: 860 } }, both);
  await choose(page, await until("lab is listed", async () => (await names(page)).find((name) => name.includes("lab"))));
  await page.goto(`${both}/#compare`);
  const add = async (number, family, member, option, value) => {
    if (number > 1) await page.getByRole("button", { name: "Add a configuration" }).click();
    const one = page.getByRole("region", { name: `Configuration ${number}`, exact: true });
    if (number > 1) await one.getByRole("button", { name: "Add a technique" }).click();
    await one.getByLabel("Family").selectOption(family);
    await one.locator(".part-member").selectOption(member);
    if (!option) return;
    await one.locator("summary").click();
    await one.getByLabel(option, { exact: true }).fill(value);
  };
  await add(1, "kv_format", "q8_0");
  await add(2, "kv_format", "kivi");
  await add(3, "evictor", "h2o", "budget", "128");
  await add(4, "drafter", "ngram");
  for (const box of await page.locator(".suite input[type=checkbox]").all()) await box.setChecked(false);
  await page.locator("#suite-lab").check();
  await page.locator(".suite").filter({ has: page.locator("#suite-lab") }).locator("input[type=text]").fill("multidoc");
  for (const [name, value] of [["Items per suite", 24], ["Rounds of timing", 15], ["Answer tokens", 128]]) await page.getByLabel(name).fill(String(value));
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await page.getByText("Finished.").waitFor();
  assert.equal(await page.locator(".compare-table tbody tr").count(), 5);
  await shoot(page, "compare-light");
  check();
});

test("a comparison can be cancelled, which ends it on the server", async () => {
  const { page, check } = await reader();
  await page.goto(`${base}/#compare`);
  await page.getByLabel("Rounds of timing").fill("100");
  await page.getByLabel("Answer tokens").fill("400");
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await page.getByRole("progressbar", { name: "Progress of the comparison" }).waitFor();
  await page.getByRole("button", { name: "Cancel", exact: true }).click();
  await page.getByText("Cancelled.").waitFor();
  assert.equal(await page.getByRole("button", { name: "Run", exact: true }).evaluate((node) => node === document.activeElement), true);
  const body = JSON.stringify({ with: ["kv_format=q8_0"], repeat: 1, prompt: 8, generate: 2 });
  const response = await until("the server takes another one", async () => {
    const one = await fetch(`${base}/compare`, { method: "POST", body });
    if (one.status === 200) return one;
    await one.body.cancel();
    return null;
  });
  await response.body.cancel();
  check();
});

test("one question is answered by two configurations", async () => {
  const { page, check } = await reader();
  await page.goto(`${base}/#compare`);
  for (const side of ["left", "right"]) await page.getByRole("combobox", { name: `Model of the ${side} answer` }).waitFor();
  await page.getByLabel("Question to both").fill("Once upon a time");
  const sent = [];
  page.on("request", (request) => request.url().endsWith("/v1/chat/completions") && sent.push(request.postDataJSON()));
  await page.getByRole("button", { name: "Ask both" }).click();
  await until("both are answered", async () => (await page.locator(".compare-facts").allInnerTexts()).every((text) => /tokens/.test(text)));
  assert.deepEqual(sent.map((body) => body.millrace?.use), [undefined, ["evictor=streamingllm:window=60"]]);
  check();
});

await run();
