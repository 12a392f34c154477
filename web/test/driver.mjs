// Shared by the browser tests: a live server on loopback with the built-in model of stories, Debian's Chromium, and pages of simulated
// users. A test program takes the arguments MILLRACE [PICTURES [WORDS]]; it calls test(), then run(), which runs the tests
// whose name contains WORDS.
//
// MILLRACE_CHROMIUM: a browser to use instead of /usr/bin/chromium.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";

const [binary, folder, wanted = ""] = process.argv.slice(2);
export const pictures = folder; // undefined: no screenshots are wanted
const chromiumPath = process.env.MILLRACE_CHROMIUM ?? "/usr/bin/chromium";
const LIMIT = 400_000; // ms, for the whole run
const WAIT = 60_000;   // ms, for one expected event

function skip(why) {
  console.log(`skipped: ${why}`);
  process.exit(77);
}

if (!existsSync(chromiumPath)) skip(`${chromiumPath} is not installed (apt-get install chromium)`);
const playwright = await import("playwright-core").catch(() => null);
if (!playwright) skip("playwright-core is not installed (npm ci --prefix web)");

const servers = [];
let browser;

export async function serve(...flags) {
  const port = flags.includes("--port") ? [] : ["--port", "0"];
  const process_ = spawn(binary, ["serve", "-m", "stories", ...port, "-t", "1", "--log-level", "warn", "--stream-bytes", "67108864", ...flags], { stdio: ["ignore", "pipe", "inherit"] });
  servers.push(process_);
  let text = "";
  for await (const piece of process_.stdout) {
    text += piece;
    const found = / at (http:\/\/[\d.]+:\d+)/.exec(text);
    if (!found) continue;
    process_.stdout.resume();
    process_.millrace = found[1];
    return found[1];
  }
  throw new Error(`the server ended: ${text}`);
}

// Kills a server, as in a crash; resolves once it has exited.
export async function kill(address) {
  const server = servers.find((one) => one.millrace === address && one.exitCode === null && one.signalCode === null);
  const over = new Promise((resolve) => server.once("exit", resolve));
  server.kill("SIGKILL");
  await over;
}

async function leave(code) {
  await browser?.close().catch(() => undefined);
  for (const server of servers) server.kill("SIGKILL");
  process.exit(code);
}
setTimeout(() => {
  console.log("FAILED: took too long");
  void leave(1);
}, LIMIT).unref();

export const base = await serve();
if (!(await (await fetch(base, { headers: { accept: "text/html" } })).text()).includes("<html")) {
  for (const server of servers) server.kill("SIGKILL");
  skip("the binary was built without the page");
}
browser = await playwright.chromium.launch({ executablePath: chromiumPath, args: ["--no-sandbox", "--disable-dev-shm-usage"] });

export const metric = async (name) => Number(new RegExp(`^${name}(?:\\{.*\\})? (.*)$`, "m").exec(await (await fetch(`${base}/metrics`)).text())?.[1]);

// Waits until `check` returns a truthy value, and returns it; fails after `wait` ms.
export async function until(what, check, wait = WAIT) {
  for (const end = Date.now() + wait; ; ) {
    const value = await check();
    if (value) return value;
    assert.ok(Date.now() < end, `timed out waiting until ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
}

// A new user with their own storage. Requests to other hosts, errors and violations of the content security policy fail
// the test in check().
export async function reader(options = {}, address = base) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 820 }, reducedMotion: "reduce", ...options });
  context.setDefaultTimeout(WAIT);
  const page = await context.newPage();
  const wrong = [];
  page.on("pageerror", (error) => wrong.push(`error: ${error.message}`));
  page.on("request", (request) => {
    if (!request.url().startsWith(address) && !request.url().startsWith("blob:") && !request.url().startsWith("data:")) wrong.push(`requests ${request.url()}`);
  });
  page.on("console", (message) => {
    if (message.type() === "error" && /Content Security Policy|Trusted/i.test(message.text())) wrong.push(message.text());
  });
  await page.goto(address);
  await page.getByRole("textbox", { name: "Message", exact: true }).waitFor();
  return { page, context, check: () => assert.deepEqual(wrong, []) };
}

export const field = (page) => page.getByRole("textbox", { name: "Message", exact: true });
export const answers = (page) => page.locator(".message.assistant");
export const last = (page) => answers(page).last();

export async function finished(page) {
  await page.getByRole("button", { name: "Send", exact: true }).waitFor();
  await last(page).locator("[data-facts], .facts span").first().waitFor();
}

// The token counts, times and seed of the last answer, which are shown on demand.
export async function details(page) {
  const button = last(page).getByRole("button", { name: "Details of this answer" });
  if ((await button.getAttribute("aria-expanded")) === "false") await button.click();
  return last(page).locator(".facts").innerText();
}

export async function say(page, text, setting = {}) {
  if (Object.keys(setting).length > 0) await set(page, setting);
  await field(page).fill(text);
  await field(page).press("Enter");
}

export async function set(page, setting) {
  const button = page.getByRole("button", { name: "Generation settings" });
  await button.click();
  for (const [name, value] of Object.entries(setting)) {
    if (name === "logprobs") await page.locator("#logprobs").setChecked(value);
    else await page.locator(`#field-${name}`).fill(String(value));
  }
  await button.click();
}

// Fakes the answer; the server gets no request.
export async function fakeAnswer(page, pieces) {
  await page.route("**/v1/chat/completions", (route) =>
    route.fulfill({
      contentType: "text/event-stream",
      body: [...pieces.map((delta) => `data: ${JSON.stringify({ model: "fake", choices: [{ index: 0, delta, finish_reason: null }] })}\n\n`),
        'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n', "data: [DONE]\n\n"].join(""),
    }));
}

export const shoot = async (page, name) => {
  if (!pictures) return;
  mkdirSync(pictures, { recursive: true });
  await page.screenshot({ path: join(pictures, `${name}.png`) });
};

const tests = [];
export const test = (name, run) => name.includes(wanted) && tests.push([name, run]);

export async function run() {
  let failed = 0;
  for (const [name, run] of tests) {
    const began = Date.now();
    try {
      await run();
      console.log(`passed: ${name} (${((Date.now() - began) / 1000).toFixed(1)} s)`);
    } catch (error) {
      ++failed;
      console.log(`FAILED: ${name}\n${error.stack}`);
    }
    for (const context of browser.contexts()) await context.close();
  }
  console.log(`${tests.length - failed} of ${tests.length} passed`);
  await leave(failed > 0 ? 1 : 0);
}
