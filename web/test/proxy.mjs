// The page behind a real nginx, with the two configurations of docs/ops.
//
//   node test/proxy.mjs MILLRACE [PICTURES [WORDS]]     as browser.mjs; exit status 77 also without nginx
//
// MILLRACE_NGINX: the program, to be used instead of /usr/sbin/nginx (Debian's package nginx-light).

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const nginx = process.env.MILLRACE_NGINX ?? "/usr/sbin/nginx";
if (!existsSync(nginx)) {
  console.log(`skipped: ${nginx} is not installed (apt-get install nginx-light)`);
  process.exit(77);
}
const { base, details, finished, last, reader, run, say, serve, shoot, test, until } = await import("./driver.mjs");

const OPS = fileURLToPath(new URL("../../docs/ops", import.meta.url));
const proxies = [];
process.on("exit", () => {
  for (const proxy of proxies) {
    proxy.kill("SIGKILL");
    rmSync(proxy.folder, { recursive: true, force: true });
  }
});

const freePort = () =>
  new Promise((resolve) => {
    const probe = createServer();
    probe.listen(0, "127.0.0.1", () => {
      const { port } = probe.address();
      probe.close(() => resolve(port));
    });
  });

// Runs nginx with a configuration of docs/ops; only its two addresses are other ones. Returns its own address.
async function proxyFor(name, server) {
  const address = `127.0.0.1:${await freePort()}`;
  const text = readFileSync(join(OPS, name), "utf8");
  for (const part of ["127.0.0.1:8080", "listen 127.0.0.1:8081"]) assert.ok(text.includes(part), `${name} has no ${part}`);
  const folder = mkdtempSync(join(tmpdir(), "millrace-proxy-"));
  writeFileSync(join(folder, "nginx.conf"), text.replaceAll("127.0.0.1:8080", new URL(server).host).replaceAll("127.0.0.1:8081", address));
  const proxy = spawn(nginx, ["-p", folder, "-c", join(folder, "nginx.conf"), "-e", "stderr", "-g", "daemon off; master_process off;"], { stdio: ["ignore", "inherit", "inherit"] });
  proxy.folder = folder;
  proxies.push(proxy);
  await until("nginx answers", async () => {
    assert.equal(proxy.exitCode, null, "nginx ended");
    return (await fetch(`http://${address}/`).catch(() => null)) !== null;
  });
  return `http://${address}`;
}

// A chat, the settings and the live view, with requests to nothing but `address`.
async function usePage(address, picture) {
  const { page, check } = await reader({}, address);
  const lengths = [];
  await page.exposeFunction("grew", (length) => lengths.push(length));
  await page.evaluate(() => {
    new MutationObserver(() => window.grew(document.querySelector(".message.assistant .markdown")?.textContent.length ?? 0)).observe(document.body, { childList: true, subtree: true, characterData: true });
  });
  await page.route("**/v1/chat/completions", (route) => route.continue({ postData: JSON.stringify({ ...route.request().postDataJSON(), ignore_eos: true, n: 8 }) }));
  await say(page, "Once upon a time, there was a little fox", { max_tokens: 200, temperature: 0.7, seed: 4 });
  await finished(page);
  assert.match(await details(page), /\d+ tokens/);
  assert.ok(new Set(lengths).size >= 3, `the stream came in ${new Set(lengths).size} pieces`);
  await shoot(page, picture);
  check();
  return page;
}

test("at / behind a plain proxy_pass the page works and streams", async () => {
  const address = await proxyFor("nginx-root.conf", base);
  const page = await usePage(`${address}/`, "proxy-root");
  assert.equal(new URL(page.url()).pathname, "/");
});

test("under a path prefix the page works, also from an address without the slash", async () => {
  const server = await serve("--api-prefix", "/llm", "--trusted-proxy", "127.0.0.1");
  const address = await proxyFor("nginx-prefix.conf", server);
  const redirect = await fetch(`${address}/llm?x=1`, { redirect: "manual" });
  assert.equal(redirect.status, 308);
  assert.equal(new URL(redirect.headers.get("location"), `${address}/llm?x=1`).href, `${address}/llm/?x=1`);
  const page = await usePage(`${address}/llm`, "proxy-prefix");
  assert.equal(new URL(page.url()).pathname, "/llm/");
  // Another program's page on the same host is another origin only by its name; the server knows its own name.
  const models = await fetch(`${address}/llm/v1/models`, { headers: { origin: address } });
  assert.equal(models.status, 200);
  const other = await fetch(`${address}/llm/v1/models`, { headers: { origin: "http://other.example" } });
  assert.equal(other.status, 403);
});

test("a slow stream arrives token by token through both", async () => {
  const server = await serve("--api-prefix", "/llm", "--trusted-proxy", "127.0.0.1");
  for (const address of [await proxyFor("nginx-root.conf", server), `${await proxyFor("nginx-prefix.conf", server)}/llm`]) {
    const answer = await fetch(`${address}/v1/completions`, { method: "POST", body: JSON.stringify({ prompt: "Once", max_tokens: 400, stream: true, ignore_eos: true, n: 4 }) });
    assert.equal(answer.status, 200);
    let pieces = 0;
    let text = "";
    for await (const piece of answer.body) {
      ++pieces;
      text += Buffer.from(piece).toString();
    }
    assert.ok(text.trimEnd().endsWith("data: [DONE]"));
    assert.ok(pieces >= 10, `${pieces} pieces`);
  }
});

await run();
