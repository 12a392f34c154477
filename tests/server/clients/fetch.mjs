// Plain fetch, without a client: checks the wire format field by field where the clients do not or where none exists.
import assert from 'node:assert/strict';
import { KEY, holds, messages, person, refused, same, tools } from './live.mjs';

export const api = 'llama-server';
export const client = 'fetch';

const CHAT = 'POST /v1/chat/completions', TEXT = 'POST /v1/completions', EVERY = 'Every endpoint';
const of = (api, ...cases) => cases.map((one) => ({ ...one, api }));
const has = (object, ...names) => { for (const name of names) assert.ok(name in object, `${name} is not in ${JSON.stringify(object).slice(0, 300)}`); };

export function cases({ url, another }) {
  const ask = (path, body, { key = { 'x-api-key': KEY }, method } = {}) =>
    fetch(url + path, { method: method ?? (body === undefined ? 'GET' : 'POST'), headers: { 'Content-Type': 'application/json', ...key }, body: typeof body === 'object' ? JSON.stringify(body) : body });
  const json = async (path, body) => (await ask(path, body)).json();
  const events = async (path, body) => (await (await ask(path, { ...body, stream: true })).text()).split('\n').filter((line) => line.startsWith('data: {')).map((line) => JSON.parse(line.slice(6)));
  const fails = async (status, path, body, options, check = () => true) => {
    const response = await ask(path, body, options);
    const answer = await response.json();
    assert.equal(response.status, status, JSON.stringify(answer));
    assert.match(response.headers.get('content-type'), /^application\/json/);
    assert.ok(check(answer), JSON.stringify(answer));
  };
  // A server with one slot, which is taken, and no queue; its bodies are bounded.
  const full = async (run) => {
    const server = await another('--max-streams', '1', '--queue', '0', '--max-body-bytes', '2000');
    const headers = { 'x-api-key': KEY };
    const taken = await fetch(`${server.url}/v1/completions`, { method: 'POST', headers, body: JSON.stringify({ prompt: 'One day', max_tokens: -1, ignore_eos: true, stream: true, n: 64 }) });
    assert.equal(taken.status, 200);
    try {
      await run(async (path, body) => {
        const response = await fetch(server.url + path, { method: 'POST', headers, body: JSON.stringify(body) });
        return { status: response.status, after: response.headers.get('retry-after'), answer: await response.json() };
      });
    } finally {
      await taken.body.cancel();
      assert.equal(await server.end(), 0);
    }
  };
  const large = { ...same, user: 'a'.repeat(3000) };
  const none = { key: {} }, wrong = { key: { Authorization: 'Bearer wrong' } };
  return [
    ...of('openai',
      holds(CHAT, 'every field of an answer: `id`, `object`, `created`, `model`, `system_fingerprint`, `choices[index, message, logprobs, finish_reason]`, `usage`', async () => {
        const answer = await json(CHAT.slice(5), { ...same, logprobs: true, top_logprobs: 2 });
        has(answer, 'id', 'object', 'created', 'model', 'system_fingerprint', 'choices', 'usage');
        has(answer.choices[0], 'index', 'message', 'logprobs', 'finish_reason');
        has(answer.choices[0].logprobs.content[0], 'token', 'logprob', 'bytes', 'top_logprobs');
        has(answer.usage, 'prompt_tokens', 'completion_tokens', 'total_tokens', 'prompt_tokens_details');
        assert.ok(Math.abs(answer.created - Date.now() / 1000) < 600);
      }),
      holds(CHAT, '`usage.prompt_tokens_details.cached_tokens` counts the cached tokens; `cache_salt` keeps clients apart', async () => {
        const content = 'Once upon a time there was a little girl who had a red ball and a blue ball and a green ball. '.repeat(4);
        const cached = async (cache_salt) => (await json(CHAT.slice(5), { messages: [{ role: 'user', content }], max_tokens: 1, cache_salt })).usage.prompt_tokens_details.cached_tokens;
        assert.equal(await cached('one'), 0);
        assert.ok((await cached('one')) > 16);
        assert.equal(await cached('two'), 0);
      }),
      holds(CHAT, 'roles system, developer, user, assistant and tool are taken', async () => {
        const roles = ['system', 'developer', 'user', 'assistant', 'user'].map((role) => ({ role, content: 'Hi' }));
        const call = { role: 'assistant', content: null, tool_calls: [{ id: 'a', type: 'function', function: { name: 'meet', arguments: '{}' } }] };
        const tool = { role: 'tool', tool_call_id: 'a', content: 'x' };
        assert.equal((await ask(CHAT.slice(5), { messages: [...roles, call, tool], max_tokens: 1 })).status, 200);
      }),
      holds(CHAT, '`continue_final_message` goes on with the assistant\'s words', async () => {
        const body = { messages: [{ role: 'user', content: 'Once upon' }, { role: 'assistant', content: ' a time' }], continue_final_message: true, add_generation_prompt: false, max_tokens: 4, temperature: 0 };
        assert.equal((await ask(CHAT.slice(5), body)).status, 200);
      }),
      holds(CHAT, 'a stream of `n` answers: each has its index, its role once and its reason once', async () => {
        const chunks = await events(CHAT.slice(5), { ...same, n: 3, temperature: 1 });
        for (const index of [0, 1, 2]) {
          const mine = chunks.flatMap((chunk) => chunk.choices).filter((choice) => choice.index === index);
          assert.equal(mine.filter((choice) => choice.delta.role).length, 1);
          assert.equal(mine.filter((choice) => choice.finish_reason).length, 1);
          assert.ok(mine.at(-1).finish_reason);
        }
      }),
      holds(CHAT, 'a streamed call: index always, id, type and name first, then its arguments', async () => {
        const deltas = (await events(CHAT.slice(5), { ...same, max_tokens: 300, tools, tool_choice: 'required', parallel_tool_calls: false })).flatMap((chunk) => chunk.choices[0]?.delta.tool_calls ?? []);
        assert.ok(deltas.length > 2 && deltas.every((one) => one.index === 0));
        has(deltas[0], 'id', 'type', 'function');
        assert.equal(deltas[0].function.name, 'meet');
        assert.ok(deltas.slice(1).every((one) => !('id' in one) && !('name' in one.function)));
        assert.deepEqual(Object.keys(JSON.parse(deltas.map((one) => one.function.arguments ?? '').join(''))).sort(), ['age', 'name']);
      }),
      holds(CHAT, 'a stream never cuts a character', async () => {
        const text = 'Grüße 😀 木';
        const parts = (await events(CHAT.slice(5), { ...same, max_tokens: 100, structured_outputs: { choice: [text] } })).map((chunk) => chunk.choices[0]?.delta.content ?? '');
        assert.equal(parts.join(''), text);
        assert.ok(parts.every((part) => !part.includes('\ufffd') && part.isWellFormed?.() !== false));
      }),
      holds(CHAT, 'one stop string, and a list of them', async () => {
        const text = (await json(CHAT.slice(5), { ...same, max_tokens: 20 })).choices[0].message.content, word = text.slice(6, 12);
        for (const stop of [word, ['zzz', word]]) {
          const choice = (await json(CHAT.slice(5), { ...same, max_tokens: 20, stop })).choices[0];
          assert.equal(choice.message.content, text.slice(0, text.indexOf(word)));
          assert.equal(choice.finish_reason, 'stop');
        }
      }),
      refused(CHAT, 'a role that there is not, and a tool message that answers no call: 400', async () => {
        const asked = (message) => fails(400, CHAT.slice(5), { ...same, messages: [{ role: 'user', content: 'Hi' }, message] }, {}, (answer) => answer.error.message.includes('messages'));
        await asked({ role: 'robot', content: 'x' });
        await asked({ role: 'tool', content: 'x' });
        await asked({ role: 'tool', tool_call_id: 'a', content: 'x' });
      }),
      refused(CHAT, '`cache_salt` of no characters, or of more than 1024: 400', async () => {
        for (const cache_salt of ['', 'a'.repeat(1025)]) await fails(400, CHAT.slice(5), { ...same, cache_salt }, {}, (answer) => answer.error.param === 'cache_salt');
      }),
      refused(CHAT, '`continue_final_message` beside `add_generation_prompt`: 400', () =>
        fails(400, CHAT.slice(5), { ...same, continue_final_message: true, add_generation_prompt: true }, {}, (answer) => answer.error.param === 'continue_final_message')),
      refused(CHAT, 'a stream that cannot begin is refused as JSON, with the status', () => fails(400, CHAT.slice(5), { ...same, stream: true, n: 0 }, {}, (answer) => answer.error.param === 'n')),
      holds(TEXT, 'the old shape of `logprobs`: `tokens`, `token_logprobs`, `top_logprobs` as maps, `text_offset`', async () => {
        const { logprobs } = (await json(TEXT.slice(5), { prompt: [5, 9, 17], max_tokens: 4, logprobs: 3, ignore_eos: true })).choices[0];
        for (const name of ['tokens', 'token_logprobs', 'top_logprobs', 'text_offset']) assert.equal(logprobs[name].length, 4);
        assert.ok(Object.values(logprobs.top_logprobs[0]).every((value) => value <= 0));
      }),
      refused(TEXT, 'a token outside the vocabulary, and a stop string that is too long: 400', async () => {
        await fails(400, TEXT.slice(5), { prompt: [999999] }, {}, (answer) => answer.error.param === 'prompt');
        await fails(400, TEXT.slice(5), { prompt: 'a', stop: 'x'.repeat(100000) }, {}, (answer) => answer.error.param === 'stop');
      }),
      holds('GET /v1/models', '`max_model_len`, `root` and `parent` as vLLM has them, `meta` as llama-server', async () => {
        const one = (await json('/v1/models')).data[0];
        has(one, 'id', 'object', 'created', 'owned_by', 'max_model_len', 'root', 'parent', 'meta');
        has(one.meta, 'n_vocab', 'n_ctx_train', 'n_embd', 'n_params', 'size');
      }),
      refused(EVERY, 'a full queue: 429, `rate_limit_error`, `queue_full`, `Retry-After`; a body that is too large: 413', () => full(async (post) => {
        const { status, after, answer } = await post(CHAT.slice(5), same);
        assert.deepEqual([status, answer.error.type, answer.error.code], [429, 'rate_limit_error', 'queue_full']);
        assert.ok(Number(after) >= 1);
        assert.equal((await post(CHAT.slice(5), large)).status, 413);
      })),
      refused(EVERY, 'no key: 401, `invalid_api_key`', () => fails(401, CHAT.slice(5), same, none, (answer) => answer.error.code === 'invalid_api_key'))),
    ...of('anthropic',
      holds('POST /v1/messages', 'every field of an answer; the stream\'s events are named as their data, without `[DONE]`', async () => {
        const answer = await json('/v1/messages', same);
        has(answer, 'id', 'type', 'role', 'model', 'content', 'stop_reason', 'stop_sequence', 'usage');
        has(answer.usage, 'input_tokens', 'output_tokens', 'cache_read_input_tokens', 'cache_creation_input_tokens');
        const text = await (await ask('/v1/messages', { ...same, stream: true })).text();
        for (const frame of text.trim().split('\n\n')) {
          const [name, data] = frame.split('\n');
          assert.equal(name.slice('event: '.length), JSON.parse(data.slice('data: '.length)).type);
        }
      }),
      holds('POST /v1/messages', 'a key as `Authorization: Bearer` too', async () => {
        assert.equal((await ask('/v1/messages', same, { key: { Authorization: `Bearer ${KEY}` } })).status, 200);
      }),
      refused('POST /v1/messages', 'a full queue: 529, `overloaded_error`; a body that is too large: 413, `request_too_large`', () => full(async (post) => {
        const { status, answer } = await post('/v1/messages', same), larger = await post('/v1/messages', large);
        assert.deepEqual([status, answer.type, answer.error.type], [529, 'error', 'overloaded_error']);
        assert.deepEqual([larger.status, larger.answer.error.type], [413, 'request_too_large']);
      })),
      refused('POST /v1/messages', 'a stream that cannot begin is refused as JSON, with the status', () =>
        fails(400, '/v1/messages', { ...same, stream: true, max_tokens: 0 }, {}, (answer) => answer.type === 'error' && answer.error.type === 'invalid_request_error'))),
    ...of('ollama',
      holds('POST /api/generate', 'lines of JSON by default; `format: "json"` gives an object; `system` and `keep_alive` are taken', async () => {
        const response = await ask('/api/generate', { prompt: 'Once', system: 'Be brief.', keep_alive: '5m', format: 'json', options: { temperature: 0, num_predict: 200 } });
        assert.equal(response.headers.get('content-type'), 'application/x-ndjson');
        const lines = (await response.text()).trim().split('\n').map((line) => JSON.parse(line));
        has(lines.at(-1), 'model', 'created_at', 'done_reason', 'total_duration', 'load_duration', 'prompt_eval_count', 'prompt_eval_duration', 'eval_count', 'eval_duration');
        const text = lines.map((line) => line.response).join('');
        if (lines.at(-1).done_reason === 'stop') assert.equal(typeof JSON.parse(text), 'object');
        else assert.match(text, /^\s*\{/);
      }),
      holds('GET /api/tags', '`name`, `model`, `modified_at`, `size`, `digest`, `details`', async () => has((await json('/api/tags')).models[0], 'name', 'model', 'modified_at', 'size', 'digest', 'details')),
      refused('POST /api/chat', 'a full queue: 503; a body that is too large: 413', () => full(async (post) => {
        const { status, answer } = await post('/api/chat', { messages }), larger = await post('/api/chat', large);
        assert.deepEqual([status, typeof answer.error, larger.status, typeof larger.answer.error], [503, 'string', 413, 'string']);
      })),
      refused('Every endpoint', 'no key: 401, `{"error": "text"}`', () => fails(401, '/api/tags', undefined, none, (answer) => typeof answer.error === 'string'))),
    holds('GET /health', '`{"status": "ok"}` without a key, `/v1/health` too', async () => {
      for (const path of ['/health', '/v1/health']) assert.deepEqual(await (await ask(path, undefined, none)).json(), { status: 'ok' });
    }),
    holds('POST /completion', '`content`, `tokens`, `stop_type` and `stopping_word`, `tokens_predicted`, `tokens_evaluated`, `tokens_cached`, `truncated`, `generation_settings`, `timings`', async () => {
      const ask = { prompt: 'Once upon a time', n_predict: 20, temperature: 0 };
      const text = (await json('/completion', ask)).content, word = text.slice(6, 12);
      const answer = await json('/completion', { ...ask, stop: [word] });
      has(answer, 'content', 'tokens', 'tokens_predicted', 'tokens_evaluated', 'tokens_cached', 'truncated', 'generation_settings', 'timings', 'id_slot', 'model');
      has(answer.timings, 'cache_n', 'prompt_n', 'prompt_ms', 'predicted_n', 'predicted_ms', 'prompt_per_second', 'predicted_per_second');
      assert.equal(answer.stop_type, 'word');
      assert.equal(answer.stopping_word, word);
      assert.equal(answer.content, text.slice(0, text.indexOf(word)));
    }),
    holds('POST /tokenize', 'a piece that is not UTF-8 is a list of bytes, and all of them make the text', async () => {
      const { tokens } = await json('/tokenize', { content: 'é😀', with_pieces: true });
      assert.ok(tokens.some((token) => Array.isArray(token.piece)));
      const bytes = Buffer.concat(tokens.map(({ piece }) => Buffer.from(piece)));
      assert.equal(bytes.toString().trim(), 'é😀');
    }),
    holds('POST /v1/streams/lookup', 'unknown ids return none', async () => assert.deepEqual(await json('/v1/streams/lookup', { conversation_ids: ['nobody'] }), [])),
    holds('GET /lora-adapters', 'none are loaded: an empty list', async () => assert.deepEqual(await json('/lora-adapters'), [])),
    refused('GET /v1/stream/*', 'an unknown stream: 404', () => fails(404, '/v1/stream/nobody', undefined, {}, (answer) => typeof answer.error.message === 'string')),
    refused('POST /completion', 'a full queue: 429, `unavailable_error`; a body that is too large: 413', () => full(async (post) => {
      const { status, answer } = await post('/completion', { prompt: 'a' }), larger = await post('/completion', large);
      assert.deepEqual([status, answer.error.type, larger.status, larger.answer.error.code], [429, 'unavailable_error', 413, 413]);
    })),
    refused(EVERY, 'a wrong key: 401, `authentication_error`', () => fails(401, '/props', undefined, wrong, (answer) => answer.error.type === 'authentication_error' && answer.error.code === 401)),
    refused('POST /completion', 'a schema that is none, a grammar that is none: 400 with the field', async () => {
      await fails(400, '/completion', { prompt: 'a', json_schema: { type: 'nothing' } }, {}, (answer) => answer.error.param === 'json_schema');
      await fails(400, '/completion', { prompt: 'a', grammar: 'root ::= nothing' }, {}, (answer) => answer.error.param === 'grammar');
    }),
    holds('POST /completion', '`json_schema`: the answer parses and fits', async () => {
      const value = JSON.parse((await json('/completion', { prompt: 'Once', json_schema: person, n_predict: 200, temperature: 0 })).content);
      assert.deepEqual(Object.keys(value).sort(), ['age', 'name']);
    }),
  ];
}
