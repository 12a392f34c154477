// Screenshots of every view in light, dark and on a phone, to look at after a change of the page.
//
//   node test/pictures.mjs MILLRACE FOLDER [WORDS]     FOLDER/VIEW-LOOK.png; exit status as browser.mjs

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { fakeAnswer, field, finished, reader, run, say, serve, shoot, test } from "./driver.mjs";

const store = mkdtempSync(join(tmpdir(), "millrace-page-store-"));
process.on("exit", () => rmSync(store, { recursive: true, force: true }));
process.env.MILLRACE_MODELS = process.env.HF_HOME = store; // of `--store`
const both = await serve("-m", "lab", "--store"); // stories and lab

const LOOKS = {
  light: {},
  dark: { colorScheme: "dark" },
  phone: { viewport: { width: 375, height: 740 }, hasTouch: true, isMobile: true },
  "phone-dark": { viewport: { width: 375, height: 740 }, hasTouch: true, isMobile: true, colorScheme: "dark" },
};
const ANSWER = [
  "## A wheel's power\n\nIt is $P = \\rho\\,g\\,Q\\,H\\,\\eta$.\n\n| flow | head | power |\n|---:|---:|---:|\n| 0.5 m³/s | 3 m | 11.8 kW |\n\n",
  "```python\ndef power(flow, head, efficiency=0.8):\n    return 1000 * 9.81 * flow * head * efficiency\n```\n\n1. Open the *sluice*.\n2. Watch the **race**.",
];

// What each view shows before its picture is taken.
const views = {
  first: async (page) => {
    const options = page.getByRole("combobox", { name: "Model", exact: true });
    await options.locator("option").nth(1).waitFor({ state: "attached" });
    await options.selectOption("lab");
    await page.locator(".start").first().waitFor();
  },
  answer: async (page) => {
    await fakeAnswer(page, [{ reasoning_content: "Power is work in time." }, ...ANSWER.map((content) => ({ content }))]);
    await say(page, "How much power is in the race?");
    await finished(page);
    await page.locator("math").first().waitFor();
  },
  tokens: async (page) => {
    await say(page, "The little boat", { max_tokens: 40, logprobs: true, seed: 4 });
    await finished(page);
    await page.getByRole("button", { name: "Token probabilities" }).click();
    await page.locator(".token").first().waitFor();
  },
  settings: async (page) => {
    await page.getByRole("button", { name: "Generation settings" }).click();
    await page.getByLabel("Stop strings").waitFor();
  },
  "not-sent": async (page) => {
    await page.getByRole("button", { name: "Generation settings" }).click();
    await page.getByLabel("JSON Schema").fill("{");
    await page.getByRole("button", { name: "Generation settings" }).click();
    await say(page, "One");
    await page.getByText(/Correct it in the settings/).waitFor();
  },
  models: async (page) => {
    await page.goto(`${both}/#models`);
    await page.getByText(/^2 models/).waitFor();
  },
  live: async (page) => {
    await say(page, "Once upon a time");
    await finished(page);
    await page.goto(`${both}/#live`);
    await page.getByRole("heading", { name: "KV cache" }).waitFor();
    await page.waitForTimeout(600);
  },
  compare: async (page) => {
    await page.goto(`${both}/#compare`);
    await page.getByRole("region", { name: "Configuration 1" }).waitFor();
  },
};

for (const [view, open] of Object.entries(views)) {
  for (const [look, options] of Object.entries(LOOKS)) {
    test(`${view}, ${look}`, async () => {
      const { page, check } = await reader(options, both);
      await field(page).waitFor();
      await open(page);
      await page.evaluate(() => document.activeElement.blur());
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), "the view is too wide");
      await shoot(page, `${view}-${look}`);
      check();
    });
  }
}

await run();
