// Vercel's `ai` with its provider for OpenAI-compatible servers.
import assert from 'node:assert/strict';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { APICallError, embedMany, generateObject, generateText, jsonSchema, stepCountIs, streamObject, streamText, tool } from 'ai';
import { KEY, holds, isPerson, messages, person, refused } from './live.mjs';

export const api = 'openai';
export const client = 'ai';

const CHAT = 'POST /v1/chat/completions', TEXT = 'POST /v1/completions', EMBED = 'POST /v1/embeddings';

export function cases({ url, aborts }) {
  const provide = (apiKey) => createOpenAICompatible({ name: 'millrace', baseURL: `${url}/v1`, apiKey, includeUsage: true, supportsStructuredOutputs: true });
  const millrace = provide(KEY), model = millrace('stories');
  const ask = { model, messages, maxOutputTokens: 8, temperature: 0, maxRetries: 0 };
  const schema = jsonSchema(person);
  const meet = (execute) => ({ meet: tool({ description: 'meets a person', inputSchema: schema, execute }) });
  const rejects = (promise, status) => assert.rejects(promise, (error) => APICallError.isInstance(error) && error.statusCode === status && error.message.length > 0);
  return [
    holds(CHAT, '`generateText`: text, reason, usage', async () => {
      const answer = await generateText(ask);
      assert.ok(answer.text.length > 0);
      assert.equal(answer.finishReason, 'length');
      assert.equal(answer.usage.outputTokens, 8);
    }),
    holds(CHAT, '`streamText`: the text of the whole answer, and usage', async () => {
      const stream = streamText(ask);
      let text = '';
      for await (const part of stream.textStream) text += part;
      assert.equal(text, (await generateText(ask)).text);
      assert.equal((await stream.usage).outputTokens, 8);
      assert.equal(await stream.finishReason, 'length');
    }),
    holds(CHAT, '`generateObject` and `streamObject`: what the schema says', async () => {
      isPerson((await generateObject({ ...ask, maxOutputTokens: 200, schema })).object);
      const stream = streamObject({ ...ask, maxOutputTokens: 200, schema });
      let parts = 0;
      for await (const part of stream.partialObjectStream) parts += typeof part === 'object';
      assert.ok(parts > 0);
      isPerson(await stream.object);
    }),
    holds(CHAT, 'a tool is called, run, and its result goes into the next step, whole and streamed', async () => {
      const met = [];
      const tools = meet(async (input) => (met.push(input), `Hello ${input.name}`));
      const steps = { tools, stopWhen: stepCountIs(2), maxOutputTokens: 300, prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber ? 'none' : { type: 'tool', toolName: 'meet' } }) };
      const answer = await generateText({ ...ask, ...steps });
      assert.equal(answer.steps[0].finishReason, 'tool-calls');
      isPerson(met[0]);
      assert.equal(answer.steps[0].toolResults[0].output, `Hello ${met[0].name}`);
      assert.equal(answer.steps.length, 2);
      const stream = streamText({ ...ask, ...steps });
      await stream.consumeStream();
      assert.equal((await stream.steps).length, 2);
      assert.deepEqual(met[1], met[0]);
    }),
    holds(CHAT, 'an abort ends the work', () => aborts(async () => {
      const stop = new AbortController();
      const stream = streamText({ ...ask, maxOutputTokens: 1000, abortSignal: stop.signal, onError() {} });
      for await (const part of stream.textStream) {
        assert.ok(part.length > 0);
        stop.abort();
      }
    })),
    holds(TEXT, 'a completion model', async () => {
      const answer = await generateText({ model: millrace.completionModel('stories'), prompt: 'One day', maxOutputTokens: 4, temperature: 0, maxRetries: 0 });
      assert.equal(answer.usage.outputTokens, 4);
    }),
    holds(EMBED, '`embedMany`: a vector each', async () => {
      const { embeddings, usage } = await embedMany({ model: millrace.textEmbeddingModel('stories'), values: ['One day', 'Once'], maxRetries: 0 });
      assert.equal(embeddings.length, 2);
      assert.ok(embeddings[0].length === embeddings[1].length && usage.tokens > 0);
    }),
    refused(CHAT, 'a number out of range: `APICallError` with 400', () => rejects(generateText({ ...ask, temperature: -1 }), 400)),
    refused(CHAT, 'an unknown model: `APICallError` with 404', () => rejects(generateText({ ...ask, model: millrace('other') }), 404)),
    refused(CHAT, 'a wrong key: `APICallError` with 401', () => rejects(generateText({ ...ask, model: provide('wrong')('stories') }), 401)),
    refused(CHAT, 'a prompt that does not fit: 400, and no part of a stream', async () => {
      let seen = null;
      const stream = streamText({ ...ask, messages: [{ role: 'user', content: 'word '.repeat(20000) }], onError: ({ error }) => (seen = error) });
      for await (const part of stream.textStream) assert.fail(part);
      assert.ok(APICallError.isInstance(seen) && seen.statusCode === 400);
    }),
  ];
}
