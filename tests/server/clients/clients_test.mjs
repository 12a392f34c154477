// The clients that people use against a live server: answers, streams, errors, aborts. A suite is a file: it exports the API
// that it speaks, the client's name and its cases, of which one may be of another API.
//   node clients_test.mjs path/to/millrace        exit status 77: a package is not there (npm ci)
// Where GTEST_OUTPUT names a folder, the cases are reported there in the format of GoogleTest, for tools/test_suite
// and for the lists in docs/conformance.
import { writeFileSync } from 'node:fs';
import { File } from 'node:buffer';
import { start } from './live.mjs';

globalThis.File ??= File;  // node 18 has it, but not as a global, where the clients expect it

const suites = [];
try {
  for (const name of ['openai', 'anthropic', 'ollama', 'ai', 'fetch']) suites.push(await import(`./${name}.mjs`));
} catch (error) {
  if (error.code !== 'ERR_MODULE_NOT_FOUND') throw error;
  console.log(`skipped: ${error.message}; run npm ci in tests/server/clients`);
  process.exit(77);
}

const server = await start(process.argv[2]);
let failed = 0, count = 0;
const report = [];
for (const suite of suites) {
  const result = { name: suite.client, testsuite: [] };
  report.push(result);
  for (const { api = suite.api, endpoint, what, kind, run } of suite.cases(server)) {
    const one = { name: `${endpoint}: ${what}`, status: 'RUN', result: 'COMPLETED', 'case 0': [api, endpoint, kind, what].join('\t') };
    result.testsuite.push(one);
    ++count;
    try {
      await run();
      console.log(`ok      ${suite.client}: ${one.name}`);
    } catch (error) {
      ++failed;
      one.failures = [{ failure: error.message }];
      console.log(`FAILED  ${suite.client}: ${one.name}\n${error.stack}`);
    }
  }
}
const code = await server.end();
if (code !== 0) {
  ++failed;
  console.log(`FAILED  the server left with ${code} after SIGTERM`);
}
const folder = /^json:(.*\/)$/.exec(process.env.GTEST_OUTPUT ?? '');
if (folder) writeFileSync(`${folder[1]}server_clients.json`, JSON.stringify({ testsuites: report }));
console.log(`${count - failed} of ${count} cases passed`);
process.exit(failed ? 1 : 0);
