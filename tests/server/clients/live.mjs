// The server under test, the requests that the suites share, and how a suite declares its cases.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

export const KEY = 'a-key-for-tests';
export const messages = [{ role: 'user', content: 'Once upon a time' }];
export const same = { model: 'stories', messages, max_tokens: 8, temperature: 0 };
export const person = { type: 'object', properties: { name: { type: 'string', enum: ['Tim', 'Lily'] }, age: { type: 'integer', minimum: 1, maximum: 9 } }, required: ['name', 'age'], additionalProperties: false };
export const tools = [{ type: 'function', function: { name: 'meet', description: 'meets a person', parameters: person } }];
export const isPerson = (value) => {
  assert.deepEqual(Object.keys(value).sort(), ['age', 'name']);
  assert.ok(['Tim', 'Lily'].includes(value.name) && value.age >= 1 && value.age <= 9);
};

// A case of a suite: what holds at an endpoint, or what is refused there, and a function that shows it.
export const holds = (endpoint, what, run) => ({ endpoint, what, run, kind: 'holds' });
export const refused = (endpoint, what, run) => ({ endpoint, what, run, kind: 'refused' });
export const unsupported = (endpoint, what, run) => ({ endpoint, what, run, kind: 'unsupported' });

// A running server: { url, aborts(run), another(...flags), end() }.
export async function start(millrace, flags = []) {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-files-'));
  const server = spawn(millrace, ['serve', '-m', 'stories', '--port', '0', '-t', '1', '--name', 'stories', '--api-key', KEY, '--files-dir', folder, ...flags], { stdio: ['ignore', 'pipe', 'inherit'] });
  const exited = new Promise((resolve) => server.on('exit', (code) => resolve(code)));
  const url = await new Promise((resolve, reject) => {
    createInterface({ input: server.stdout }).on('line', (line) => line.includes(' at http') && resolve(line.split(' at ')[1]));
    exited.then((code) => reject(new Error(`the server left with ${code}`)));
  });
  // The sum of what begins with `name`, a pattern, in the metrics.
  const metric = async (name) => {
    const text = await (await fetch(`${url}/metrics`, { headers: { 'x-api-key': KEY } })).text();
    return text.split('\n').filter((line) => new RegExp(`^${name}[ {]`).test(line)).reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0);
  };
  return {
    url,
    // Runs what leaves an answer under way, and waits until the server has ended its work unfinished.
    async aborts(run) {
      const aborted = 'millrace_answers_finished_total.*finished_reason="abort".*';
      const before = await metric(aborted);
      await run();
      await becomes(async () => (await metric(aborted)) === before + 1 && (await metric('millrace_requests_running')) === 0);
    },
    another: (...flags) => start(millrace, flags),
    // The exit status after SIGTERM.
    async end() {
      server.kill('SIGTERM');
      const code = await exited;
      rmSync(folder, { recursive: true, force: true });
      return code;
    },
  };
}

export async function becomes(check) {
  for (let i = 0; i < 600; ++i) {
    if (await check()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.fail('it never came true');
}
