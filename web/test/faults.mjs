// The page under faults: reloads, an unreachable server, a refused key, a conversation too long for the model, files that
// the model cannot read, a small screen.
//
//   node test/faults.mjs MILLRACE [PICTURES [WORDS]]     as browser.mjs

import assert from "node:assert/strict";

import { answers, base, details, field, finished, kill, last, metric, reader, run, say, serve, set, shoot, test, until } from "./driver.mjs";

// Answers that take seconds: many long ones at once. The page shows the first one.
const LONG = { n: 24, max_tokens: 800, ignore_eos: true, seed: 11, temperature: 0.8 };
async function longAnswers(page, first = () => undefined) {
  await page.route("**/v1/chat/completions", async (route) => {
    const body = { ...route.request().postDataJSON(), ...LONG };
    first(body);
    await route.continue({ postData: JSON.stringify(body) });
  });
}

// A server whose port stays free while it is away: below those that the system gives to others.
let port = 20000 + (process.pid % 10000);
const restartable = () => serve("--port", String(port++));

const shown = (page) => last(page).locator(".markdown").innerText();
const words = (text) => text.replace(/\s+/g, " ").trim();

// The answer to the same request without faults. The first of many answers is the one that comes alone.
async function undisturbed(prompt, address = base) {
  const answer = await fetch(`${address}/v1/chat/completions`, { method: "POST", body: JSON.stringify({ messages: [{ role: "user", content: prompt }], ...LONG, n: 1 }) });
  return words((await answer.json()).choices[0].message.content);
}

async function grown(page) {
  await last(page).locator(".markdown").waitFor();
  await until("the text grows", async () => (await shown(page)).length > 40);
}

test("an answer continues across a reload and ends as without one", async () => {
  const { page, check } = await reader();
  await longAnswers(page);
  await say(page, "The old mill");
  await grown(page);
  await page.reload();
  await last(page).locator(".markdown").waitFor();
  await page.getByRole("button", { name: "Stop", exact: true }).waitFor();
  await finished(page);
  assert.equal(words(await shown(page)), await undisturbed("The old mill"));
  assert.match(await details(page), new RegExp(`${LONG.n * LONG.max_tokens} tokens`));
  check();
});

test("an answer continues in a conversation that is not shown", async () => {
  const { page, check } = await reader();
  await longAnswers(page);
  await say(page, "A quiet river");
  await grown(page);
  await page.getByRole("button", { name: "New conversation" }).click();
  await page.locator(".empty").waitFor();
  await page.getByRole("button", { name: "A quiet river", exact: true }).click();
  await finished(page);
  assert.equal(words(await shown(page)), await undisturbed("A quiet river"));
  check();
});

test("a second tab takes over an answer, and the first one says so", async () => {
  const { page, context, check } = await reader();
  await longAnswers(page);
  await say(page, "Two windows");
  await grown(page);
  await until("it is stored", () => page.evaluate(() => localStorage.getItem("millrace.open")));
  await new Promise((resolve) => setTimeout(resolve, 1200));
  const second = await context.newPage();
  await second.goto(base);
  await last(second).locator(".markdown").waitFor();
  await last(page).getByText("Continued in another tab").waitFor();
  await finished(second);
  assert.equal(words(await shown(second)), await undisturbed("Two windows"));
  check();
});

test("a server that crashes during an answer and restarts: the page waits, and the answer is the same", async () => {
  const address = await restartable();
  const { page, check } = await reader({}, address);
  await longAnswers(page);
  await say(page, "One winter night");
  await grown(page);
  await kill(address);
  await page.locator(".banner").getByText("The server is not responding").waitFor();
  await shoot(page, "server-away");
  const back = page.getByText("Reconnected.").waitFor();  // shown for a moment only
  await serve("--port", new URL(address).port);
  await back;
  await page.locator(".banner").waitFor({ state: "hidden" });
  await finished(page);
  assert.equal(words(await shown(page)), await undisturbed("One winter night", address));
  assert.equal(await answers(page).count(), 1);
  check();
});

test("while the server is unreachable the live view says so, and opens when it is back", async () => {
  const address = await restartable();
  const { page, check } = await reader({}, address);
  await kill(address);
  await page.getByRole("link", { name: "Live" }).click();
  await page.locator(".live").getByText("the server is not responding").waitFor();
  await page.locator(".banner").getByText("The server is not responding").waitFor();
  await shoot(page, "live-away");
  await serve("--port", new URL(address).port);
  await page.getByRole("heading", { name: "The engine" }).waitFor();
  await page.locator("[data-figure=running]").getByText("0").waitFor();
  check();
});

test("an open live view reports the failure and continues when the server is back", async () => {
  const address = await restartable();
  const { page, check } = await reader({}, address);
  await page.getByRole("link", { name: "Live" }).click();
  await page.locator("[data-figure=running]").getByText("0").waitFor();
  await kill(address);
  await page.locator(".banner").getByText("The server is not responding").waitFor();
  const back = page.getByText("Reconnected.").waitFor();  // shown for a moment only
  await serve("--port", new URL(address).port);
  await back;
  await until("the feed is back", async () => !(await page.locator(".feed-state").innerText()).includes("Reconnecting"));
  check();
});

test("a message sent while the server is unreachable is answered when it is back", async () => {
  const address = await restartable();
  const { page, check } = await reader({}, address);
  await kill(address);
  await say(page, "Anyone there?", {});
  await page.locator(".banner").waitFor();
  assert.equal(await page.getByText("Failed to fetch").count(), 0);
  await serve("--port", new URL(address).port);
  await finished(page);
  assert.ok((await shown(page)).length > 0);
  check();
});

test("a refused key is reported", async () => {
  const address = await serve("--api-key", "secret");
  const { page, check } = await reader({}, address);
  const key = page.getByLabel("API key");
  await key.waitFor();
  assert.equal(await page.getByText("did not accept that key").count(), 0);
  await key.fill("wrong");
  await key.press("Enter");
  await page.getByRole("alert").getByText("The server did not accept that key.").waitFor();
  await shoot(page, "key-refused");
  await key.fill("secret");
  await key.press("Enter");
  await page.getByRole("heading", { level: 1, name: /stories/ }).waitFor();
  check();
});

const PAGEFUL = "The miller opened the gate in the morning and closed it in the evening. ".repeat(40);

async function overflow(page) {
  await say(page, PAGEFUL, { max_tokens: 8, temperature: 0 });  // a sampled answer may be empty
  await finished(page);
  await say(page, `And then? ${PAGEFUL}`);
  await last(page).getByRole("alert").waitFor();
}

test("a conversation that is too long continues without its oldest messages", async () => {
  const { page, check } = await reader();
  await overflow(page);
  await shoot(page, "too-long");
  const sent = page.waitForRequest("**/v1/chat/completions");
  await page.getByRole("button", { name: "Leave out the oldest messages" }).click();
  const { messages } = (await sent).postDataJSON();
  assert.equal(messages.length, 1);
  assert.match(messages[0].content, /^And then\?/);
  await finished(page);
  assert.ok((await shown(page)).length > 0);
  assert.equal(await last(page).getByRole("alert").count(), 0);
  await page.getByText("The model's context starts here").waitFor();
  assert.equal(await page.locator(".message.left-out").count(), 2);
  await shoot(page, "trimmed");
  await page.reload();
  await page.getByText("The model's context starts here").waitFor();
  await page.getByRole("button", { name: "Include all messages" }).click();
  assert.equal(await page.locator(".message.left-out").count(), 0);
  check();
});

test("a conversation that is too long continues in a new conversation", async () => {
  const { page, check } = await reader();
  await overflow(page);
  const sent = page.waitForRequest("**/v1/chat/completions");
  await page.getByRole("button", { name: "Ask in a new conversation" }).click();
  assert.equal((await sent).postDataJSON().messages.length, 1);
  await finished(page);
  assert.equal(await page.locator(".message").count(), 2);
  assert.equal(await page.locator(".conversation").count(), 2);
  check();
});

test("a message that is too long on its own is opened for editing", async () => {
  const { page, check } = await reader();
  await say(page, PAGEFUL.repeat(3));
  await last(page).getByRole("alert").waitFor();
  await page.getByRole("button", { name: "Leave out the oldest messages" }).click();
  await page.getByRole("textbox", { name: "Edit message" }).waitFor();
  await page.locator(".notice").getByText("Shorten it").waitFor();
  check();
});

test("a stopped answer keeps its token counts, and the engine stops", async () => {
  const { page, check } = await reader();
  await longAnswers(page, (body) => (body.n = 100));
  await say(page, "One day");
  await grown(page);
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await finished(page);
  assert.match(await details(page), /Stopped[\s\S]*[1-9]\d* tokens[\s\S]*tokens\/s/);
  await until("no stream runs", async () => (await metric("millrace_requests_running")) === 0);
  await page.reload();
  await details(page);
  await last(page).locator(".facts").getByText(/^[1-9]\d* tokens$/).waitFor();
  check();
});

test("files that the model cannot read are refused before sending", async () => {
  const { page, check } = await reader();
  const pick = (name, mimeType, buffer) => page.locator("input[type=file][multiple]").setInputFiles({ name, mimeType, buffer: Buffer.from(buffer) });
  const refused = async (name, why) => {
    await page.locator(".notice").getByText(why).waitFor();
    assert.equal(await page.locator(".chip").count(), 0, name);
  };
  await pick("mill.png", "image/png", "\x89PNG text that could be UTF-8".slice(1));
  await refused("mill.png", /mill\.png is an image, and .* reads text only/);
  await pick("talk.mp3", "audio/mpeg", "ID3");
  await refused("talk.mp3", /talk\.mp3 is an audio file/);
  await pick("paper.pdf", "application/pdf", "%PDF-1.4");
  await refused("paper.pdf", /paper\.pdf is a PDF/);
  await pick("data.bin", "application/octet-stream", [0, 1, 2]);
  await refused("data.bin", /data\.bin is not a text file/);
  await pick("book.txt", "text/plain", PAGEFUL.repeat(3));
  await refused("book.txt", /book\.txt has \d+ tokens, more than the \d+ that .* can read/);
  await pick("line.svg", "image/svg+xml", "<svg/>");
  await page.locator(".chip").getByText("line.svg").waitFor();
  check();
});

// All visible touch targets that are smaller than 44 x 44 pixels.
const small = (page) => page.evaluate(() => {
  const out = [];
  for (const node of document.querySelectorAll("button, a, select, textarea, summary, input:not([type=hidden]), label.check")) {
    const box = node.getBoundingClientRect();
    if (box.width === 0 || box.height === 0 || node.closest("label.check") !== (node.matches("label.check") ? node : null) || node.matches("[hidden], .skip, .markdown a")) continue;
    if (Math.round(box.height) < 44 || Math.round(box.width) < 44) out.push(`${node.getAttribute("aria-label") ?? node.textContent}: ${box.width} x ${box.height}`);
  }
  return out;
});

test("phone: touch targets are large enough, settings do not cover the live view, the model's name is readable", async () => {
  const { page, check } = await reader({ viewport: { width: 375, height: 740 }, hasTouch: true, isMobile: true });
  const large = async (where) => assert.deepEqual(await small(page), [], where);
  await page.locator(".real-model").waitFor();
  await large("the empty page");
  await page.locator("input[type=file][multiple]").setInputFiles({ name: "mill.csv", mimeType: "text/csv", buffer: Buffer.from("a,b") });
  await page.locator(".chip").waitFor();
  await say(page, "A long story about a mill, please", { max_tokens: 24, logprobs: true });
  await finished(page);
  await large("a conversation");
  await page.getByRole("button", { name: "Regenerate" }).click();
  await last(page).getByText("2 / 2").waitFor();
  await finished(page);
  await large("versions");
  await shoot(page, "phone-chat");
  const name = page.getByRole("combobox", { name: "Model" });
  assert.ok(await name.evaluate((select) => {
    const text = document.createElement("span");
    text.textContent = select.selectedOptions[0].textContent;
    text.style.cssText = `position: absolute; white-space: nowrap; font: ${getComputedStyle(select).font}`;
    document.body.append(text);
    const fits = text.getBoundingClientRect().width + 40 <= select.getBoundingClientRect().width;
    text.remove();
    return fits;
  }), "the model's name is cut off");
  await page.getByRole("button", { name: "Conversations" }).click();
  await page.getByRole("button", { name: "New conversation" }).waitFor();
  await large("the list of conversations");
  await shoot(page, "phone-list");
  await page.getByRole("button", { name: /^Delete A long/ }).click();
  await large("the delete confirmation");
  await page.getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("button", { name: "Conversations" }).click();
  const settings = page.getByRole("button", { name: "Generation settings" });
  await settings.click();
  await large("the settings");
  await shoot(page, "phone-settings");
  await page.getByRole("link", { name: "Live" }).click();
  await page.locator("[data-figure=running]").getByText("0").waitFor();
  assert.equal(await page.locator("#panel").isVisible(), false, "the settings cover the live view");
  assert.equal(await page.locator(".cover").isVisible(), false);
  await large("the live view");
  await shoot(page, "phone-live");
  await page.getByRole("link", { name: "Models" }).click();
  await page.locator(".models-item").first().waitFor();
  await large("the models view");
  await page.getByRole("link", { name: "Compare" }).click();
  await page.locator(".builder .part").first().waitFor();
  await large("comparisons");
  check();
});

await run();
