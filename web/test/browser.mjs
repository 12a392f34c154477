// The web page from a user's perspective.
//
//   node test/browser.mjs MILLRACE [PICTURES [WORDS]]     exit status 77 without Chromium, the packages or the page;
//                                                        PICTURES: folder for screenshots; WORDS: run only tests whose
//                                                        name contains these words

import assert from "node:assert/strict";

import { base, details, fakeAnswer, field, finished, last, metric, pictures, reader, run, say, serve, shoot, test, until } from "./driver.mjs";

test("a message is answered, and the text grows in several steps", async () => {
  const { page, check } = await reader();
  await page.evaluate(() => {
    window.lengths = [];
    new MutationObserver(() => {
      const text = document.querySelector(".message.assistant .markdown")?.textContent ?? "";
      if (text.length > (window.lengths.at(-1) ?? 0)) window.lengths.push(text.length);
    }).observe(document.body, { childList: true, subtree: true, characterData: true });
  });
  // Eight long answers, which take many frames; the page shows the first one.
  await page.route("**/v1/chat/completions", (route) =>
    route.continue({ postData: JSON.stringify({ ...route.request().postDataJSON(), ignore_eos: true, n: 8 }) }));
  await say(page, "Once upon a time, there was a little fox", { max_tokens: 400, temperature: 0.7, seed: 4 });
  await finished(page);
  const lengths = await page.evaluate(() => window.lengths);
  assert.ok(lengths.length >= 3, `grew ${lengths.length} times`);
  assert.doesNotMatch(await last(page).locator(".facts").innerText(), /seed/);
  assert.match(await details(page), /\d+ tokens.*seed \d+/s);
  assert.equal(await page.locator(".conversation[aria-current]").innerText(), "Once upon a time, there was a little fox");
  // The picture shows one answer, whose speed is not shared with seven others.
  await page.unroute("**/v1/chat/completions");
  await page.getByRole("button", { name: "New conversation" }).click();
  await say(page, "One day, a girl found a box in the garden. In it");
  await finished(page);
  await details(page);
  await shoot(page, "chat-light");
  check();
});

test("Esc and the stop button end the engine's work", async () => {
  const { page, check } = await reader();
  for (const stop of [() => page.keyboard.press("Escape"), () => page.getByRole("button", { name: "Stop", exact: true }).click()]) {
    // Many answers of maximum length, so that there is time to stop them; the page shows the first one.
    await page.route("**/v1/chat/completions", async (route) => {
      const body = { ...route.request().postDataJSON(), max_tokens: -1, ignore_eos: true, n: 100 };
      await route.continue({ postData: JSON.stringify(body) });
    });
    const generated = await metric("millrace_generated_tokens_total");
    await say(page, "One day");
    await page.getByRole("button", { name: "Stop", exact: true }).waitFor();
    await stop();
    await finished(page);
    await until("no stream runs", async () => (await metric("millrace_requests_running")) === 0);
    assert.ok((await metric("millrace_generated_tokens_total")) - generated < 50_000);
    assert.match(await last(page).locator(".facts").innerText(), /Stopped/);
    await page.unroute("**/v1/chat/completions");
  }
  check();
});

test("regenerating, editing and switching between versions survive a reload", async () => {
  const { page, check } = await reader();
  await say(page, "One day, a bird", { max_tokens: 24, temperature: 1.5 });
  await finished(page);
  const first = await last(page).locator(".markdown").innerText();
  await page.getByRole("button", { name: "Regenerate" }).click();
  await last(page).getByText("2 / 2").waitFor();
  await finished(page);
  const second = await last(page).locator(".markdown").innerText();
  await page.getByRole("button", { name: "Previous version" }).click();
  assert.equal(await last(page).locator(".markdown").innerText(), first);
  await page.getByRole("button", { name: "Next version" }).click();
  assert.equal(await last(page).locator(".markdown").innerText(), second);

  await page.locator(".message.user").hover();
  await page.getByRole("button", { name: "Edit message" }).click();
  const edit = page.getByRole("textbox", { name: "Edit message" });
  assert.equal(await edit.inputValue(), "One day, a bird");
  await edit.fill("One day, a cat");
  await edit.press("Enter");
  await page.locator(".message.user").getByText("2 / 2").waitFor();
  await finished(page);
  assert.equal(await page.locator(".said").innerText(), "One day, a cat");
  await shoot(page, "branches");

  await page.reload();
  await page.locator(".said").getByText("One day, a cat").waitFor();
  await page.locator(".message.user").getByRole("button", { name: "Previous version" }).click();
  assert.equal(await page.locator(".said").innerText(), "One day, a bird");
  assert.equal(await last(page).locator(".markdown").innerText(), second);
  await page.getByRole("button", { name: "Previous version" }).last().click();
  assert.equal(await last(page).locator(".markdown").innerText(), first);
  check();
});

test("a token shows its probability and the alternatives", async () => {
  const { page, check } = await reader();
  await say(page, "The little boat", { max_tokens: 40, logprobs: true, seed: 4 });
  await finished(page);
  const text = await last(page).locator(".markdown").innerText();
  await page.getByRole("button", { name: "Token probabilities" }).click();
  const tokens = last(page).locator(".token");
  assert.ok((await tokens.count()) > 10);
  assert.equal((await last(page).locator(".tokens").innerText()).replace(/\s+/g, ""), text.replace(/\s+/g, ""));
  await tokens.nth(5).hover();
  const card = page.getByRole("tooltip");
  await card.waitFor();
  assert.ok((await card.locator("tr").count()) >= 5);
  assert.match(await card.innerText(), /\d %/);
  await shoot(page, "tokens");
  await page.mouse.move(5, 400);
  await card.waitFor({ state: "hidden" });
  await tokens.nth(2).focus();
  await card.waitFor();
  check();
});

const hostile = [
  "<script>window.hit = 1</script>",
  "<img src=x onerror=\"window.hit = 1\">",
  "<svg onload=\"window.hit = 1\"></svg>",
  "<iframe srcdoc=\"<script>parent.hit = 1</script>\"></iframe>",
  "[press](javascript:window.hit=1) [press](data:text/html,<script>window.hit=1</script>) <javascript:window.hit=1>",
  "![picture](https://elsewhere.example/track.png) ![x](x\" onerror=\"window.hit=1)",
  "```html\n<script>window.hit = 1</script>\n```",
  "```js\" onmouseover=\"window.hit=1\nlet a = \"<img src=x onerror=window.hit=1>\";\n```",
  "$\\href{javascript:window.hit=1}{x}$ $\\html{<img src=x onerror=window.hit=1>}$ $$\\text{<script>window.hit=1</script>}$$",
  "| a | b |\n|---|---|\n| <b onclick=\"window.hit=1\">x</b> | `<script>` |",
  "&lt;script&gt;window.hit = 1&lt;/script&gt;",
].join("\n\n");

test("markup in answers, messages, files and titles is shown as text", async () => {
  const { page, check } = await reader();
  await fakeAnswer(page, [{ role: "assistant", content: "" }, { reasoning_content: "<img src=x onerror=window.hit=1>" }, { content: hostile.slice(0, 100) }, { content: hostile.slice(100) }]);
  await page.locator("input[type=file][multiple]").setInputFiles({ name: "<img src=x onerror=window.hit=1>.txt", mimeType: "text/plain", buffer: Buffer.from(hostile) });
  await say(page, hostile);
  await finished(page);
  await page.locator("math").first().waitFor();
  await page.locator(".code .hl-name, .code .hl-keyword").first().waitFor();
  const found = await page.evaluate(() => ({
    hit: window.hit,
    elements: document.querySelectorAll(".log script, .log img, .log iframe, .log svg:not(.icon), .log b, .log [onerror], .log [onclick], .log [onmouseover]").length,
    links: [...document.querySelectorAll(".log a")].map((link) => link.href),
  }));
  assert.equal(found.hit, undefined);
  assert.equal(found.elements, 0);
  assert.deepEqual(found.links, ["https://elsewhere.example/track.png"]);
  assert.equal(await page.locator(".log").getByText("<script>window.hit = 1</script>").count() > 0, true);
  check();
  assert.equal(await page.evaluate(() => {
    try {
      document.createElement("div").innerHTML = "<b>x</b>";
      return "made";
    } catch (error) {
      return error.name;
    }
  }), "TypeError");
});

test("Markdown, code, formulas, reasoning and files are rendered", async () => {
  const { page, check } = await reader({ permissions: ["clipboard-read", "clipboard-write"] });
  const answer = "## How a mill turns\n\nThe power of a wheel is $P = \\rho\\,g\\,Q\\,H\\,\\eta$:\n\n$$\\eta = \\frac{P_{out}}{\\rho g Q H} \\le 1$$\n\n| flow | head | power |\n|---:|---:|---:|\n| 0.5 m³/s | 3 m | 11.8 kW |\n| 1.0 m³/s | 3 m | 23.5 kW |\n\n```python\ndef power(flow, head, efficiency=0.8):\n    \"\"\"Watts of a wheel.\"\"\"\n    return 1000 * 9.81 * flow * head * efficiency\n```\n\n1. Open the *sluice*.\n2. Watch the **race**.\n   - [x] gate\n   - [ ] stones";
  await fakeAnswer(page, [{ reasoning_content: "Power is work in time." }, ...answer.match(/[\s\S]{1,40}/g).map((content) => ({ content }))]);
  await page.locator("input[type=file][multiple]").setInputFiles({ name: "mill.csv", mimeType: "text/csv", buffer: Buffer.from("flow,head\n0.5,3\n1.0,3\n") });
  await page.getByText("mill.csv").waitFor();
  const sent = page.waitForRequest("**/v1/chat/completions");
  await say(page, "How much power is in the race?");
  assert.match((await sent).postDataJSON().messages.at(-1).content, /^File mill\.csv:\n```\nflow,head\n0\.5,3[\s\S]*How much power/);
  await finished(page);
  await page.locator("math").nth(1).waitFor();
  await page.locator(".code .hl-keyword").first().waitFor();
  assert.equal(await page.locator(".markdown table td").count(), 6);
  assert.equal(await page.locator(".markdown ol > li").count(), 2);
  assert.equal(await page.locator(".reasoning[open]").count(), 0);
  await page.locator(".reasoning summary").click();
  await page.getByText("Power is work in time.").waitFor();
  await page.locator(".reasoning summary").click();
  await page.getByRole("button", { name: "Copy code" }).click();
  assert.match(await page.evaluate(() => navigator.clipboard.readText()), /^def power/);
  await shoot(page, "markdown-light");
  await page.getByRole("button", { name: "Switch between light and dark" }).click();
  await shoot(page, "markdown-dark");
  check();
});

test("conversations: rename, delete, export, import", async () => {
  const { page, check } = await reader();
  await say(page, "A small door", { max_tokens: 8 });
  await finished(page);
  await page.getByRole("button", { name: "Rename A small door" }).click();
  await page.getByRole("textbox", { name: "Title" }).fill("The door");
  await page.getByRole("textbox", { name: "Title" }).press("Enter");
  await page.locator(".conversation").getByText("The door").waitFor();
  const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Export" }).click()]);
  const path = await file.path();
  await page.getByRole("button", { name: "Delete The door" }).click();
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await page.getByText("Conversations stay in this browser.").waitFor();
  await page.locator("input[type=file][accept]").setInputFiles(path);
  await page.getByRole("button", { name: "The door", exact: true }).click();
  await page.locator(".said").getByText("A small door").waitFor();
  check();
});

test("dark mode by system preference and by the switch, kept across a reload", async () => {
  const { page, check } = await reader({ colorScheme: "dark" });
  const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const dark = await paper();
  await page.getByRole("button", { name: "Switch between light and dark" }).click();
  const light = await paper();
  assert.notEqual(light, dark);
  await page.reload();
  await field(page).waitFor();
  assert.equal(await paper(), light);
  await page.keyboard.press("Escape");
  await page.locator("body").click({ position: { x: 700, y: 300 } });
  await page.keyboard.press("t");
  assert.equal(await paper(), dark);
  check();
});

test("a slow start leaves the focus where the user puts it", async () => {
  const { page, check } = await reader();
  let answerModels;
  const asked = new Promise((resolve) => page.route("**/v1/models", async (route) => {
    await new Promise((answer) => { answerModels = answer; resolve(); });
    await route.continue();
  }));
  await page.reload();
  await asked;
  const focused = () => page.evaluate(() => document.activeElement.tagName);
  assert.equal(await focused(), "TEXTAREA");
  await page.locator("body").click({ position: { x: 700, y: 300 } });
  assert.notEqual(await focused(), "TEXTAREA");
  const answered = page.waitForResponse("**/v1/models");
  answerModels();
  await answered;
  await page.locator(".bar option").first().waitFor({ state: "attached" });
  await page.evaluate(() => new Promise((done) => setTimeout(done, 50)));
  assert.notEqual(await focused(), "TEXTAREA");
  check();
});

test("phone: nothing is wider than the screen, and everything is reachable", async () => {
  const { page, check } = await reader({ viewport: { width: 375, height: 740 }, hasTouch: true, isMobile: true });
  const fits = async (where) => assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), `${where} is too wide`);
  await fits("the empty page");
  await fakeAnswer(page, [{ content: `${"verylongword".repeat(30)}\n\n\`\`\`\n${"code ".repeat(60)}\n\`\`\`\n\n$$${"x + ".repeat(60)}y$$\n\n|${" a |".repeat(20)}\n|${"---|".repeat(20)}\n|${" b |".repeat(20)}` }]);
  await say(page, "wide ".repeat(60) + "w".repeat(200));
  await finished(page);
  await fits("a conversation");
  await page.getByRole("button", { name: "Conversations" }).click();
  await page.getByRole("button", { name: "New conversation" }).waitFor();
  await fits("the list");
  await page.getByRole("button", { name: "New conversation" }).click();
  await page.getByRole("button", { name: "Generation settings" }).click();
  await fits("the settings");
  await page.getByRole("button", { name: "Generation settings" }).click();
  await page.getByRole("link", { name: "Live" }).click();
  await page.locator("[data-figure=running]").getByText("0").waitFor();
  await fits("the live view");
  await shoot(page, "live-phone");
  check();
});

test("an unknown view is the chat, also if its name is one of an object's properties", async () => {
  const { page, check } = await reader();
  for (const name of ["constructor", "toString", "nothing"]) {
    await page.goto(`${base}/#live`);
    await page.getByRole("heading", { name: "The engine" }).waitFor();
    await page.goto(`${base}/#${name}`);
    await field(page).waitFor();
    assert.equal(await page.locator(".tab[aria-current]").innerText(), "Chat");
  }
  check();
});

test("the keyboard shortcuts work as listed", async () => {
  const { page, check } = await reader();
  await page.locator(".bar .brand").click();
  await page.keyboard.press("?");
  await page.getByRole("dialog").getByText("Regenerate the last answer").waitFor();
  await page.keyboard.press("Escape");
  await page.keyboard.press("/");
  assert.equal(await field(page).evaluate((node) => node === document.activeElement), true);
  await field(page).press("Shift+Enter");
  assert.equal(await field(page).inputValue(), "\n");
  await page.locator(".bar .brand").click();
  await page.keyboard.press("l");
  await page.getByRole("heading", { name: "The engine" }).waitFor();
  await page.keyboard.press("l");
  await field(page).waitFor();
  check();
});

test("without a key the page asks for one", async () => {
  const address = await serve("--api-key", "secret");
  const { page, check } = await reader({}, address);
  const key = page.getByLabel("API key");
  await key.fill("wrong");
  await key.press("Enter");
  await page.getByRole("heading", { name: "This server requires a key" }).waitFor();
  await key.fill("secret");
  await key.press("Enter");
  await page.getByRole("heading", { level: 1, name: /stories/ }).waitFor();
  await say(page, "Once", { max_tokens: 4 });
  await finished(page);
  check();
});

test("the live view updates while requests run", async () => {
  const { page, check } = await reader({ viewport: { width: 1280, height: 1240 } });
  await page.goto(`${base}/#live`);
  await page.getByText("Nothing is running.").waitFor();
  const image = (name) => page.locator(`.card-${name} canvas`).first().evaluate((canvas) => canvas.toDataURL());
  const before = { lanes: await image("lanes"), steps: await image("steps"), blocks: await image("blocks") };
  const prompt = "Once upon a time there was a mill by a river, and every morning the miller opened the gate and the wheel began to turn. ".repeat(6);
  const streams = Array.from({ length: 5 }, (_, i) =>
    fetch(`${base}/v1/completions`, { method: "POST", body: JSON.stringify({ prompt: prompt + (i < 4 ? "" : "Then"), n: i === 4 ? 3 : 1, max_tokens: 700, ignore_eos: true, seed: i }) }).then((answer) => answer.text()));
  const shared = /, [1-9]\d* shared/;
  const seen = { running: false, shared: false, tokens: false };
  await until("the figures change", async () => {
    seen.running ||= Number(await page.locator("[data-figure=running]").innerText()) > 0;
    seen.shared ||= shared.test(await page.locator("[data-blocks]").innerText());
    seen.tokens ||= parseFloat(await page.locator("[data-figure=decode]").innerText()) > 0;
    return seen.running && seen.shared && seen.tokens;
  });
  for (const name of ["lanes", "steps", "blocks"]) await until(`the chart ${name} changes`, async () => (await image(name)) !== before[name]);
  await page.locator(".card-blocks canvas").hover({ position: { x: 6, y: 6 } });
  await page.getByText(/^Block 0: /).waitFor();
  if (pictures) await page.waitForTimeout(1500); // so that the charts show about two seconds of decoding
  await shoot(page, "live-light");
  await page.emulateMedia({ colorScheme: "dark" });
  await shoot(page, "live-dark");
  await Promise.all(streams);
  await until("the streams are over", async () => (await page.locator("[data-figure=running]").innerText()) === "0");
  assert.match(await page.locator(".card-latency").innerText(), /p50 .* p95/);
  assert.match(await page.locator(".card-techniques").innerText(), /[1-9][\d.k]* prompt tokens not computed/);
  check();
});

await run();
