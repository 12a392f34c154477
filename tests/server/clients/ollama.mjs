// The client of Ollama.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Ollama } from 'ollama';
import { KEY, becomes, holds, isPerson, messages, person, refused, tools } from './live.mjs';

export const api = 'ollama';
export const client = 'ollama';

const CHAT = 'POST /api/chat', GENERATE = 'POST /api/generate', EMBED = 'POST /api/embed';

export function cases({ url, aborts, another }) {
  const ollama = new Ollama({ host: url, headers: { Authorization: `Bearer ${KEY}` } });
  const options = { temperature: 0, num_predict: 8 };
  const ask = { model: 'stories', messages, options };
  const rejects = (promise, status, word) => assert.rejects(promise, (error) => error.status_code === status && error.message.includes(word));
  return [
    holds(CHAT, 'whole and streamed are the same text; the last part has the reason, counts and times', async () => {
      const whole = await ollama.chat(ask);
      assert.equal(whole.done_reason, 'length');
      const parts = [];
      for await (const part of await ollama.chat({ ...ask, stream: true })) parts.push(part);
      assert.equal(parts.map((part) => part.message.content).join(''), whole.message.content);
      const last = parts.at(-1);
      assert.equal(last.done, true);
      assert.ok(last.eval_count === 8 && last.prompt_eval_count > 0 && last.total_duration >= last.eval_duration);
      assert.ok(parts.slice(0, -1).every((part) => part.done === false));
    }),
    holds(CHAT, 'a format: the answer parses and fits', async () => {
      const answer = await ollama.chat({ ...ask, format: person, options: { temperature: 0, num_predict: 200 } });
      isPerson(JSON.parse(answer.message.content));
    }),
    holds(CHAT, 'tools are let through, and an answer may do without them', async () => {
      const answer = await ollama.chat({ ...ask, tools });
      assert.equal(answer.done, true);
    }),
    holds(CHAT, 'an abort ends the work', () => aborts(async () => {
      const stream = await ollama.chat({ ...ask, options: { num_predict: 1000, temperature: 0 }, stream: true });
      await assert.rejects(async () => {
        for await (const part of stream) {
          assert.equal(part.done, false);
          stream.abort();
        }
      }, { name: 'AbortError' });
    })),
    holds(CHAT, 'no messages load the model, and with `keep_alive: 0` unload it', async () => {
      const loaded = await ollama.chat({ model: 'stories', messages: [] });
      assert.equal(loaded.done_reason, 'load');
      assert.equal((await ollama.chat({ model: 'stories', messages: [], keep_alive: 0 })).done_reason, 'unload');
      assert.equal((await ollama.chat(ask)).done_reason, 'length');  // it is loaded again
    }),
    holds('POST /api/create', 'a model is created, copied, answered by and deleted; a built-in one is copied', async () => {
      const folder = mkdtempSync(join(tmpdir(), 'millrace-store-')), before = process.env.MILLRACE_MODELS;
      process.env.MILLRACE_MODELS = folder;
      const own = await another('--store');
      try {
        const admin = new Ollama({ host: own.url, headers: { Authorization: `Bearer ${KEY}` } });
        const steps = [];
        for await (const part of await admin.create({ model: 'calm', from: 'stories', system: 'Be calm.', parameters: { temperature: 0, num_predict: 3 }, stream: true })) steps.push(part.status);
        assert.equal(steps.at(-1), 'success');
        assert.equal((await admin.show({ model: 'calm' })).system, 'Be calm.');
        assert.equal((await admin.generate({ model: 'calm', prompt: 'Once' })).eval_count, 3);
        await admin.copy({ source: 'calm', destination: 'calmer' });
        await admin.copy({ source: 'lab', destination: 'mine' });
        const names = (await admin.list()).models.map((model) => model.name);
        for (const name of ['calm', 'calmer', 'mine']) assert.ok(names.includes(name), `${name} of ${names}`);
        for (const name of ['calm', 'calmer', 'mine']) await admin.delete({ model: name });
        // A model that was loaded is shown until it is unloaded.
        await becomes(() => admin.show({ model: 'calm' }).then(() => false, (error) => error.status_code === 404));
      } finally {
        if (before === undefined) delete process.env.MILLRACE_MODELS;
        else process.env.MILLRACE_MODELS = before;
        assert.equal(await own.end(), 0);
        rmSync(folder, { recursive: true, force: true });
      }
    }),
    holds(GENERATE, 'an answer with its counts', async () => {
      const answer = await ollama.generate({ model: 'stories', prompt: 'Once upon a time', options: { temperature: 0, num_predict: 4 } });
      assert.equal(answer.eval_count, 4);
      assert.ok(answer.response.length > 0);
    }),
    holds(GENERATE, '`logprobs` with `top_logprobs`, whole and streamed', async () => {
      const ask = { model: 'stories', prompt: 'Once upon a time', logprobs: true, top_logprobs: 2, options: { temperature: 0, num_predict: 4 } };
      const answer = await ollama.generate(ask);
      assert.equal(answer.logprobs.length, 4);
      assert.equal(answer.logprobs[0].top_logprobs.length, 2);
      const streamed = [];
      for await (const part of await ollama.generate({ ...ask, stream: true })) streamed.push(...(part.logprobs ?? []));
      assert.deepEqual(streamed, answer.logprobs);
    }),
    holds(GENERATE, '`context` goes on with a conversation', async () => {
      const ask = { model: 'stories', prompt: 'Once upon a time', options: { temperature: 0, num_predict: 4 } };
      const first = await ollama.generate(ask), next = await ollama.generate({ ...ask, prompt: 'And then', context: first.context });
      assert.deepEqual(next.context.slice(0, first.context.length), first.context);
      assert.ok(next.prompt_eval_count > first.context.length);
    }),
    refused(GENERATE, 'images and templates: 400 with the field', async () => {
      await rejects(ollama.generate({ model: 'stories', prompt: 'a', images: ['AAAA'] }), 400, 'images');
      await rejects(ollama.generate({ model: 'stories', prompt: 'a', template: '{{ .Prompt }}' }), 400, 'template');
    }),
    holds('GET /api/tags', 'digests are of 64 hexadecimal digits, the same in `ps`; `quantization_level`', async () => {
      const [one] = (await ollama.list()).models;
      assert.match(one.digest, /^[0-9a-f]{64}$/);
      assert.equal((await ollama.ps()).models[0].digest, one.digest);
      assert.ok(one.details.quantization_level.length > 1);
    }),
    holds('GET /api/tags', 'the model is listed', async () => assert.equal((await ollama.list()).models[0].name, 'stories')),
    holds('POST /api/show', 'the model is described', async () => assert.equal((await ollama.show({ model: 'stories' })).model_info['general.architecture'], 'llama')),
    holds('GET /api/ps', 'the model is loaded', async () => assert.equal((await ollama.ps()).models.length, 1)),
    holds('GET /api/version', 'a version is told', async () => assert.ok((await ollama.version()).version)),
    holds(EMBED, 'a list gives a vector each, of one length, under the old name too', async () => {
      const answer = await ollama.embed({ model: 'stories', input: ['Once upon a time', 'One day'] });
      assert.equal(answer.embeddings.length, 2);
      assert.ok(answer.prompt_eval_count > 0);
      assert.equal((await ollama.embeddings({ model: 'stories', prompt: 'One day' })).embedding.length, answer.embeddings[0].length);
    }),
    refused(CHAT, 'an unknown model: 404 with its name', () => rejects(ollama.chat({ ...ask, model: 'other' }), 404, 'other')),
    refused(CHAT, 'an option of a wrong type: 400 with its path', () => rejects(ollama.chat({ ...ask, options: { temperature: 'hot' } }), 400, 'options.temperature')),
    refused(GENERATE, 'a format that is none: 400', () => rejects(ollama.generate({ model: 'stories', prompt: 'a', format: 'xml' }), 400, 'format')),
    refused(EMBED, 'no input: 400 with the field', () => rejects(ollama.embed({ model: 'stories' }), 400, 'input')),
    refused('POST /api/show', 'an unknown model: 404', () => rejects(ollama.show({ model: 'other' }), 404, 'other')),
    refused('Every endpoint', 'a wrong key: 401', () => rejects(new Ollama({ host: url, headers: { Authorization: 'Bearer wrong' } }).list(), 401, '')),
  ];
}
