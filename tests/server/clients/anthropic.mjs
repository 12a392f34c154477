// The client of Anthropic.
import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';
import { KEY, becomes, holds, isPerson, messages, person, refused, same, unsupported } from './live.mjs';

export const api = 'anthropic';
export const client = '@anthropic-ai/sdk';

const MESSAGES = 'POST /v1/messages', COUNT = 'POST /v1/messages/count_tokens';

export function cases({ url, aborts }) {
  const anthropic = new Anthropic({ baseURL: url, apiKey: KEY, maxRetries: 0 });
  const create = (more) => anthropic.messages.create({ ...same, ...more });
  const type = (error) => error.error.error.type;
  const rejects = (ask, kind, name) => assert.rejects(ask, (error) => error instanceof kind && type(error) === name && error.error.type === 'error');
  return [
    holds(MESSAGES, 'a whole answer: one block of text, `max_tokens`, usage', async () => {
      const answer = await create();
      assert.equal(answer.type, 'message');
      assert.equal(answer.role, 'assistant');
      assert.equal(answer.stop_reason, 'max_tokens');
      assert.equal(answer.usage.output_tokens, 8);
      assert.equal(answer.content[0].type, 'text');
      assert.ok(answer.content[0].text.length > 0);
    }),
    holds(MESSAGES, 'a stream has the text of the whole answer, its events in their order', async () => {
      const whole = await create(), types = [];
      const stream = anthropic.messages.stream(same);
      let text = '';
      stream.on('text', (part) => (text += part));
      stream.on('streamEvent', (event) => types.push(event.type));
      const last = await stream.finalMessage();
      assert.equal(text, whole.content[0].text);
      assert.equal(last.stop_reason, 'max_tokens');
      assert.equal(last.usage.output_tokens, 8);
      assert.deepEqual([types[0], types[1]], ['message_start', 'content_block_start']);
      assert.deepEqual(types.slice(-3), ['content_block_stop', 'message_delta', 'message_stop']);
    }),
    holds(MESSAGES, '`stop_sequences` end the answer and are named', async () => {
      const whole = (await create({ max_tokens: 20 })).content[0].text, stop = whole.slice(8, 14);
      const answer = await create({ max_tokens: 20, stop_sequences: [stop] });
      assert.equal(answer.stop_reason, 'stop_sequence');
      assert.equal(answer.stop_sequence, stop);
      assert.equal(answer.content[0].text, whole.slice(0, whole.indexOf(stop)));
    }),
    holds(MESSAGES, '`cache_control` and unknown fields are let through', async () => {
      const odd = await create({ messages: [{ role: 'user', content: [{ type: 'text', text: 'Once upon a time', cache_control: { type: 'ephemeral' } }] }], metadata: { user_id: 'u' }, nobody_knows: 1 });
      assert.deepEqual(odd.content, (await create()).content);
    }),
    holds(MESSAGES, 'a tool is used, whole and streamed; its result is taken', async () => {
      const ask = { model: 'stories', messages, max_tokens: 300, temperature: 0, tools: [{ name: 'meet', description: 'meets somebody', input_schema: person }], tool_choice: { type: 'any', disable_parallel_tool_use: true } };
      const answer = await anthropic.messages.create(ask);
      assert.equal(answer.stop_reason, 'tool_use');
      const use = answer.content.find((block) => block.type === 'tool_use');
      isPerson(use.input);
      const streamed = await anthropic.messages.stream(ask).finalMessage();
      assert.deepEqual(streamed.content.find((block) => block.type === 'tool_use').input, use.input);
      const next = await anthropic.messages.create({ ...ask, max_tokens: 4, tool_choice: { type: 'none' },
        messages: [...messages, { role: 'assistant', content: answer.content }, { role: 'user', content: [{ type: 'tool_result', tool_use_id: use.id, content: 'Hello' }] }] });
      assert.equal(next.stop_reason, 'max_tokens');
    }),
    holds(MESSAGES, 'an abort ends the work', () => aborts(async () => {
      const stream = anthropic.messages.stream({ ...same, max_tokens: 1000, ignore_eos: true });
      for await (const event of stream) {
        assert.equal(event.type, 'message_start');
        break;  // the client closes the connection
      }
    })),
    holds(MESSAGES, '`output_config.format`: the text fits the schema', async () => {
      const answer = await create({ max_tokens: 200, output_config: { format: { type: 'json_schema', schema: person } } });
      assert.equal(answer.stop_reason, 'end_turn');
      isPerson(JSON.parse(answer.content[0].text));
    }),
    holds('GET /v1/models', 'models in the shape of this API, in pages, and one by its name', async () => {
      const ids = [];
      for await (const model of anthropic.models.list({ limit: 1 })) {
        assert.equal(model.type, 'model');
        ids.push(model.id);
      }
      assert.ok(ids.includes('stories'));
      assert.equal((await anthropic.models.retrieve('stories')).display_name, 'stories');
      await assert.rejects(anthropic.models.retrieve('other'), Anthropic.NotFoundError);
    }),
    holds('POST /v1/messages/batches', 'a batch ends; its results are those of live requests; it is listed and deleted', async () => {
      const { messages: { batches } } = anthropic;
      const { id } = await batches.create({ requests: [{ custom_id: 'a', params: same }, { custom_id: 'b', params: { ...same, max_tokens: 0 } }] });
      await becomes(async () => (await batches.retrieve(id)).processing_status === 'ended');
      const results = {};
      for await (const one of await batches.results(id)) results[one.custom_id] = one.result;
      assert.deepEqual(results.a.message.content, (await create()).content);
      assert.equal(results.b.error.error.type, 'invalid_request_error');
      const ids = [];
      for await (const one of batches.list()) ids.push(one.id);
      assert.ok(ids.includes(id));
      assert.equal((await batches.delete(id)).type, 'message_batch_deleted');
      await assert.rejects(batches.retrieve(id), Anthropic.NotFoundError);
    }),
    holds(MESSAGES, 'what Claude Code sends: beta headers, `context_management` that keeps all, and a changing billing line', async () => {
      const ask = (line) => ({ ...same, betas: ['context-management-2025-06-27', 'interleaved-thinking-2025-05-14'], context_management: { edits: [{ type: 'clear_thinking_20251015', keep: 'all' }] },
        system: [{ type: 'text', text: `x-anthropic-billing-header: ${line};` }, { type: 'text', text: 'You tell stories to children.', cache_control: { type: 'ephemeral' } }] });
      const first = await anthropic.beta.messages.create(ask('cc_version=1; cch=aaaa'));
      const second = await anthropic.beta.messages.create(ask('cc_version=1; cch=bbbb'));
      assert.deepEqual(second.content, first.content);
      assert.ok(first.content[0].text.length > 0);
    }),
    unsupported(MESSAGES, 'fields of the API that are not there', async () => {
      for (const [name, value] of Object.entries({ container: 'c', mcp_servers: [{ type: 'url', url: 'x', name: 'y' }], context_management: { edits: [{ type: 'clear_tool_uses_20250919' }] } })) {
        await assert.rejects(create({ [name]: value }), (error) => error.status === 400 && error.error.error.message.startsWith(`${name}: `));
      }
    }),
    holds(COUNT, 'counts what the answer then counts', async () => {
      const counted = await anthropic.messages.countTokens({ model: 'stories', messages });
      assert.equal(counted.input_tokens, (await create({ max_tokens: 1 })).usage.input_tokens);
    }),
    refused(MESSAGES, '`max_tokens: 0`: `BadRequestError`, `invalid_request_error`', () => rejects(create({ max_tokens: 0 }), Anthropic.BadRequestError, 'invalid_request_error')),
    refused(MESSAGES, 'a wrong type: `BadRequestError`, `invalid_request_error`', () => rejects(create({ temperature: 'hot' }), Anthropic.BadRequestError, 'invalid_request_error')),
    refused(MESSAGES, 'a prompt that does not fit: `BadRequestError`, before a stream begins', () =>
      rejects(create({ stream: true, messages: [{ role: 'user', content: 'word '.repeat(20000) }] }), Anthropic.BadRequestError, 'invalid_request_error')),
    refused(MESSAGES, 'a wrong key: `AuthenticationError`, `authentication_error`', () =>
      rejects(new Anthropic({ baseURL: url, apiKey: 'wrong', maxRetries: 0 }).messages.create(same), Anthropic.AuthenticationError, 'authentication_error')),
    refused(MESSAGES, 'an unknown model: `NotFoundError`, `not_found_error`', () => rejects(create({ model: 'other' }), Anthropic.NotFoundError, 'not_found_error')),
    unsupported(MESSAGES, 'pictures in a message', () =>
      assert.rejects(create({ messages: [{ role: 'user', content: [{ type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AAAA' } }] }] }),
        (error) => error.status === 400 && error.message.includes('messages[0].content[0]'))),
  ];
}
