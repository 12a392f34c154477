// Checks the types and runs test/*.test.ts: bundles them with Vite's esbuild and runs them with node's test runner.
//
//   node test/unit.mjs      exit status 77 without the packages

import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const folder = dirname(fileURLToPath(import.meta.url));
if (!existsSync(join(folder, "../node_modules/vite"))) {
  console.log("skipped: the packages are not installed; npm ci --prefix web");
  process.exit(77);
}
const require = createRequire(join(folder, "../node_modules/vite/package.json"));
const out = mkdtempSync(join(tmpdir(), "millrace-page-test-"));
const tests = readdirSync(folder).filter((name) => name.endsWith(".test.ts"));
await require("esbuild").build({ entryPoints: tests.map((name) => join(folder, name)), outdir: out, outExtension: { ".js": ".mjs" }, bundle: true, platform: "node", format: "esm", sourcemap: "inline", logLevel: "warning" });
const types = spawnSync(process.execPath, [join(folder, "../node_modules/typescript/bin/tsc"), "--noEmit", "-p", join(folder, "..")], { stdio: "inherit" });
if (types.status !== 0) process.exit(1);
const ran = spawnSync(process.execPath, ["--test", ...tests.map((name) => join(out, name.replace(/\.ts$/, ".mjs")))], { stdio: "inherit" });
rmSync(out, { recursive: true, force: true });
process.exit(ran.status ?? 1);
