// The client of OpenAI.
import assert from 'node:assert/strict';
import OpenAI, { toFile } from 'openai';
import { KEY, becomes, holds, isPerson, messages, person, refused, same, tools, unsupported } from './live.mjs';

export const api = 'openai';
export const client = 'openai';

const CHAT = 'POST /v1/chat/completions', TEXT = 'POST /v1/completions', EMBED = 'POST /v1/embeddings', RESPONSES = 'POST /v1/responses';
const MODELS = 'GET /v1/models', FILES = '/v1/files and /v1/batches', EVERY = 'Every endpoint';

export function cases({ url, aborts, another }) {
  const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: KEY, maxRetries: 0 });
  const chat = (more) => openai.chat.completions.create({ ...same, ...more });
  return [
    holds(CHAT, 'a whole answer: text, `length` at `max_tokens`, usage', async () => {
      const answer = await chat();
      assert.equal(answer.object, 'chat.completion');
      assert.match(answer.id, /^chatcmpl-/);
      assert.equal(answer.choices[0].finish_reason, 'length');
      assert.equal(answer.usage.completion_tokens, 8);
      assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + 8);
      assert.ok(answer.choices[0].message.content.length > 0);
    }),
    holds(CHAT, '`max_completion_tokens` is `max_tokens` under its new name', async () => {
      const answer = await openai.chat.completions.create({ model: 'stories', messages, temperature: 0, max_completion_tokens: 3 });
      assert.equal(answer.usage.completion_tokens, 3);
    }),
    holds(CHAT, 'unknown fields are ignored: the answer is that without them', async () => {
      const plain = await chat(), odd = await chat({ metadata: { a: 'b' }, store: false, service_tier: 'auto', user: 'u', nobody_knows: [1, { x: null }] });
      assert.deepEqual(odd.choices, plain.choices);
    }),
    holds(CHAT, 'a stream has the text of the whole answer; its role comes first, its usage last, alone', async () => {
      const whole = await chat();
      const chunks = [];
      for await (const chunk of await chat({ stream: true, stream_options: { include_usage: true } })) chunks.push(chunk);
      assert.equal(chunks.map((chunk) => chunk.choices[0]?.delta?.content ?? '').join(''), whole.choices[0].message.content);
      assert.equal(chunks[0].choices[0].delta.role, 'assistant');
      assert.deepEqual(chunks.at(-1).choices, []);
      assert.equal(chunks.at(-1).usage.completion_tokens, 8);
      assert.equal(chunks.at(-2).choices[0].finish_reason, 'length');
      assert.ok(chunks.slice(0, -1).every((chunk) => chunk.usage === null));
    }),
    holds(CHAT, 'the stream helper puts the answer together', async () => {
      const answer = await openai.chat.completions.stream(same).finalChatCompletion();
      assert.equal(answer.choices[0].finish_reason, 'length');
    }),
    holds(CHAT, '`n`, `seed`, `logprobs` with `top_logprobs`, `stop`: the same answers twice', async () => {
      const ask = { temperature: 1, n: 2, seed: 7, logprobs: true, top_logprobs: 3, stop: ['zzz'] };
      const first = await chat(ask), second = await chat(ask);
      assert.equal(first.choices.length, 2);
      assert.deepEqual(first.choices, second.choices);
      assert.equal(first.choices[0].logprobs.content[0].top_logprobs.length, 3);
    }),
    holds(CHAT, '`logit_bias` of 100 decides the token, of -100 excludes it', async () => {
      const first = (await chat({ max_tokens: 1, logprobs: true, return_token_ids: true })).choices[0];
      const id = first.token_ids[0];
      assert.notEqual((await chat({ max_tokens: 1, return_token_ids: true, logit_bias: { [id]: -100 } })).choices[0].token_ids[0], id);
      assert.equal((await chat({ max_tokens: 1, return_token_ids: true, logit_bias: { 300: 100 } })).choices[0].token_ids[0], 300);
    }),
    holds(CHAT, 'an abort ends the work', () => aborts(async () => {
      for await (const chunk of await chat({ max_tokens: 1000, ignore_eos: true, stream: true })) {
        assert.ok(chunk.choices.length > 0);
        break;  // the client closes the connection
      }
    })),
    holds(CHAT, 'a stream is read on after its connection was lost', async () => {
      const headers = { 'X-Conversation-Id': 'client-1' };
      const ask = { max_tokens: 30, ignore_eos: true };
      const whole = (await chat(ask)).choices[0].message.content;
      for await (const chunk of await openai.chat.completions.create({ ...same, ...ask, stream: true }, { headers })) {
        assert.ok(chunk.choices.length > 0);
        break;  // the client closes the connection
      }
      const rest = await (await fetch(`${url}/v1/stream/client-1?from=0`, { headers: { Authorization: `Bearer ${KEY}` } })).text();
      const events = rest.split('\n').filter((line) => line.startsWith('data: {')).map((line) => JSON.parse(line.slice(6)));
      assert.equal(events.map((event) => event.choices[0]?.delta?.content ?? '').join(''), whole);
      assert.ok(rest.endsWith('data: [DONE]\n\n'));
    }),
    holds(CHAT, '`response_format` with a JSON Schema: the answer parses and fits', async () => {
      const answer = await chat({ max_tokens: 200, response_format: { type: 'json_schema', json_schema: { name: 'person', strict: true, schema: person } } });
      assert.equal(answer.choices[0].finish_reason, 'stop');
      isPerson(JSON.parse(answer.choices[0].message.content));
    }),
    holds(CHAT, 'a named tool is called, whole and streamed; its result is taken, and `tool_choice: "none"` calls none', async () => {
      const ask = { ...same, max_tokens: 300, tools, tool_choice: { type: 'function', function: { name: 'meet' } } };
      const answer = await openai.chat.completions.create(ask);
      assert.equal(answer.choices[0].finish_reason, 'tool_calls');
      const call = answer.choices[0].message.tool_calls[0];
      assert.equal(call.function.name, 'meet');
      isPerson(JSON.parse(call.function.arguments));
      const streamed = (await openai.chat.completions.stream(ask).finalChatCompletion()).choices[0].message.tool_calls[0];
      assert.equal(streamed.function.arguments, call.function.arguments);
      const next = await chat({ tools, tool_choice: 'none', messages: [...messages, answer.choices[0].message, { role: 'tool', tool_call_id: call.id, content: 'Hello' }] });
      assert.equal(next.choices[0].finish_reason, 'length');
    }),
    holds(CHAT, '`allowed_tools`, the old `functions`, and custom tools', async () => {
      const two = [...tools, { type: 'function', function: { name: 'leave', parameters: { type: 'object', properties: {} } } }];
      const allowed = await chat({ max_tokens: 300, tools: two, tool_choice: { type: 'allowed_tools', allowed_tools: { mode: 'required', tools: [{ type: 'function', function: { name: 'leave' } }] } } });
      assert.ok(allowed.choices[0].message.tool_calls.every((call) => call.function.name === 'leave'));
      const old = await chat({ max_tokens: 300, functions: [tools[0].function], function_call: { name: tools[0].function.name } });
      assert.equal(old.choices[0].finish_reason, 'function_call');
      isPerson(JSON.parse(old.choices[0].message.function_call.arguments));
      const custom = await chat({ max_tokens: 100, tools: [{ type: 'custom', custom: { name: 'run', format: { type: 'grammar', grammar: { syntax: 'lark', definition: 'start: "run " /[a-c]+/ ~ 1..2' } } } }], tool_choice: { type: 'custom', custom: { name: 'run' } } });
      assert.match(custom.choices[0].message.tool_calls[0].custom.input, /^run [a-c]+$/);
    }),
    unsupported(CHAT, 'fields of the API that are not there are 400 by name, and asked once', async () => {
      for (const [name, value] of Object.entries({ modalities: ['text', 'audio'], audio: { voice: 'a', format: 'wav' } })) {
        await assert.rejects(chat({ [name]: value }), (error) => error instanceof OpenAI.BadRequestError && error.param === name && error.code === 'unsupported_parameter');
      }
    }),
    holds(CHAT, 'fields whose value is the default, or only permits something, change nothing', async () => {
      const plain = await chat();
      for (const more of [{ verbosity: 'medium' }, { modalities: ['text'] }, { parallel_tool_calls: true, tools }, { reasoning_effort: null }, { frequency_penalty: 0, presence_penalty: 0, logit_bias: {} }, { prediction: null, audio: null, web_search_options: null }]) {
        const answer = await chat(more);
        if (!more.tools) assert.deepEqual(answer.choices, plain.choices, JSON.stringify(more));
      }
    }),
    holds(CHAT, '`tool_choice: "required"` beside `response_format`: the call decides', async () => {
      const answer = await chat({ max_tokens: 300, tools, tool_choice: 'required', parallel_tool_calls: false, response_format: { type: 'json_object' } });
      isPerson(JSON.parse(answer.choices[0].message.tool_calls[0].function.arguments));
    }),
    holds(CHAT, 'an address without `/v1`', async () => {
      const bare = new OpenAI({ baseURL: url, apiKey: KEY, maxRetries: 0 });
      assert.deepEqual((await bare.chat.completions.create(same)).choices, (await chat()).choices);
    }),
    holds(CHAT, 'a built-in model keeps its name next to other models, and answers to its long name', async () => {
      const two = await another('-m', 'lab');
      try {
        const both = new OpenAI({ baseURL: `${two.url}/v1`, apiKey: KEY, maxRetries: 0 });
        const ids = (await both.models.list()).data.map((model) => model.id);
        assert.deepEqual(ids.sort(), ['lab', 'stories']);
        const ask = { ...same, model: 'lab' };
        const answer = await both.chat.completions.create(ask);
        assert.equal(answer.model, 'lab');
        assert.deepEqual((await both.chat.completions.create({ ...ask, model: 'millrace-lab' })).choices, answer.choices);
      } finally {
        assert.equal(await two.end(), 0);
      }
    }),
    refused(CHAT, 'a wrong type: `BadRequestError` with `param`', () =>
      assert.rejects(chat({ temperature: 'hot' }), (error) => error instanceof OpenAI.BadRequestError && error.param === 'temperature')),
    refused(CHAT, 'a number out of range: `BadRequestError` with `param`', () =>
      assert.rejects(chat({ top_p: 2 }), (error) => error instanceof OpenAI.BadRequestError && error.param === 'top_p')),
    refused(CHAT, 'no messages: `BadRequestError` with `param`', () =>
      assert.rejects(openai.chat.completions.create({ model: 'stories' }), (error) => error instanceof OpenAI.BadRequestError && error.param === 'messages')),
    refused(CHAT, 'an unknown model: `NotFoundError`, code `model_not_found`', () =>
      assert.rejects(chat({ model: 'gpt-0' }), (error) => error instanceof OpenAI.NotFoundError && error.code === 'model_not_found')),
    refused(CHAT, 'a prompt that does not fit: `BadRequestError`, code `context_length_exceeded`, before a stream begins', () =>
      assert.rejects(chat({ stream: true, messages: [{ role: 'user', content: 'word '.repeat(20000) }] }),
        (error) => error instanceof OpenAI.BadRequestError && error.code === 'context_length_exceeded')),
    holds(CHAT, "an empty list of tools is none", async () => assert.equal((await chat({ tools: [] })).choices.length, 1)),
    refused(CHAT, 'a schema that is none: `BadRequestError` with the path to it', () =>
      assert.rejects(chat({ response_format: { type: 'json_schema', json_schema: { name: 'x', schema: { type: 'nothing' } } } }),
        (error) => error instanceof OpenAI.BadRequestError && error.param === 'response_format.json_schema.schema')),
    unsupported(CHAT, 'pictures and sound in a message: 400 with the path to the part', async () => {
      const part = (content) => chat({ messages: [{ role: 'user', content: [content] }] });
      for (const content of [{ type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } }, { type: 'input_audio', input_audio: { data: 'AAAA', format: 'wav' } }]) {
        await assert.rejects(part(content), (error) => error.status === 400 && error.param === 'messages[0].content[0]');
      }
    }),

    holds(TEXT, '`echo` with `max_tokens: 0` and `logprobs` scores prompts; the first token has none', async () => {
      const answer = await openai.completions.create({ model: 'stories', prompt: ['One day', 'Once'], max_tokens: 0, echo: true, logprobs: 1 });
      assert.equal(answer.object, 'text_completion');
      assert.deepEqual(answer.choices.map((choice) => choice.text), ['One day', 'Once']);
      const { tokens, token_logprobs, top_logprobs, text_offset } = answer.choices[0].logprobs;
      assert.equal(token_logprobs[0], null);
      assert.ok(token_logprobs.slice(1).every((value) => value <= 0));
      assert.equal(new Set([tokens, token_logprobs, top_logprobs, text_offset].map((list) => list.length)).size, 1);
    }),
    holds(TEXT, 'without `max_tokens` there are 16', async () => {
      const answer = await openai.completions.create({ model: 'stories', prompt: 'One day', ignore_eos: true });
      assert.equal(answer.usage.completion_tokens, 16);
    }),
    holds(TEXT, '`best_of` and `use_beam_search`', async () => {
      const best = await openai.completions.create({ model: 'stories', prompt: 'One day', max_tokens: 4, best_of: 3, n: 1, seed: 1 });
      assert.equal(best.choices.length, 1);
      const beams = await openai.completions.create({ model: 'stories', prompt: 'One day', max_tokens: 4, n: 2, use_beam_search: true });
      assert.equal(beams.choices.length, 2);
    }),
    unsupported(TEXT, '`suffix` with a model that cannot fill in: 400 that says so', () =>
      assert.rejects(openai.completions.create({ model: 'stories', prompt: 'One day', suffix: 'the end' }), (error) => error.status === 400 && error.message.includes('fill in'))),

    holds(EMBED, 'base64, which this client asks for by itself, and floats are the same vectors of length 1; `dimensions`, usage', async () => {
      const input = ['Once upon a time', 'One day'];
      const usual = await openai.embeddings.create({ model: 'stories', input });
      const floats = await openai.embeddings.create({ model: 'stories', input, encoding_format: 'float' });
      assert.equal(usual.data.length, 2);
      const same = (left, right) => assert.deepEqual(left.map(Math.fround), right.map(Math.fround));
      same(usual.data[1].embedding, floats.data[1].embedding);
      assert.ok(Math.abs(Math.hypot(...floats.data[0].embedding) - 1) < 1e-5);
      same((await openai.embeddings.create({ model: 'stories', input: 'One day', encoding_format: 'float' })).data[0].embedding, floats.data[1].embedding);
      assert.equal((await openai.embeddings.create({ model: 'stories', input, dimensions: 8 })).data[0].embedding.length, 8);
      assert.ok(usual.usage.prompt_tokens > 0);
    }),
    refused(EMBED, 'an empty list: `BadRequestError` with `param`', () =>
      assert.rejects(openai.embeddings.create({ model: 'stories', input: [] }), (error) => error instanceof OpenAI.BadRequestError && error.param === 'input')),

    holds(MODELS, 'the list, and one by its name', async () => {
      assert.deepEqual((await openai.models.list()).data.map((model) => model.id), ['stories']);
      const one = await openai.models.retrieve('stories');
      assert.equal(one.id, 'stories');
      assert.equal(one.object, 'model');
      assert.ok(one.created > 0 && one.owned_by);
    }),
    refused(MODELS, 'an unknown one: `NotFoundError`', () => assert.rejects(openai.models.retrieve('gpt-0'), OpenAI.NotFoundError)),
    refused(EVERY, 'a wrong key: `AuthenticationError`', () =>
      assert.rejects(new OpenAI({ baseURL: `${url}/v1`, apiKey: 'wrong', maxRetries: 0 }).models.list(), OpenAI.AuthenticationError)),

    holds(FILES, 'a file goes up, its batch is answered as live requests are, both are found and the file removed', async () => {
      const body = { model: 'stories', prompt: 'One day', max_tokens: 4, temperature: 0 };
      const lines = ['a', 'b', 'c'].map((id) => JSON.stringify({ custom_id: id, method: 'POST', url: '/v1/completions', body }));
      const file = await openai.files.create({ file: await toFile(Buffer.from(lines.join('\n')), 'in.jsonl'), purpose: 'batch' });
      assert.equal((await openai.files.retrieve(file.id)).bytes, lines.join('\n').length);
      assert.ok((await openai.files.list()).data.some((one) => one.id === file.id));
      let batch = await openai.batches.create({ input_file_id: file.id, endpoint: '/v1/completions', completion_window: '24h' });
      await becomes(async () => (batch = await openai.batches.retrieve(batch.id)).status === 'completed');
      assert.deepEqual(batch.request_counts, { total: 3, completed: 3, failed: 0 });
      const results = (await (await openai.files.content(batch.output_file_id)).text()).trim().split('\n').map((line) => JSON.parse(line));
      assert.deepEqual(results.map((one) => one.custom_id).sort(), ['a', 'b', 'c']);
      const live = await openai.completions.create(body);
      for (const one of results) assert.equal(one.response.body.choices[0].text, live.choices[0].text);
      assert.equal((await openai.files.delete(file.id)).deleted, true);
      assert.equal((await openai.batches.list()).data[0].id, batch.id);
    }),
    refused(FILES, 'a batch of a file that is not there: `BadRequestError`', () =>
      assert.rejects(openai.batches.create({ input_file_id: 'file-0', endpoint: '/v1/completions', completion_window: '24h' }), OpenAI.BadRequestError)),

    holds(RESPONSES, 'stored, found, continued by `previous_response_id`, removed; streamed events in their order', async () => {
      const ask = { model: 'stories', input: 'Once upon a time', max_output_tokens: 8, temperature: 0 };
      const first = await openai.responses.create(ask);
      assert.equal(first.output_text, (await chat()).choices[0].message.content);
      assert.equal(first.status, 'incomplete');
      assert.equal((await openai.responses.retrieve(first.id)).id, first.id);
      const second = await openai.responses.create({ ...ask, input: 'And then', previous_response_id: first.id });
      assert.ok(second.usage.input_tokens > first.usage.input_tokens);
      const types = [];
      let text = '';
      for await (const event of await openai.responses.create({ ...ask, stream: true })) {
        types.push(event.type);
        if (event.type === 'response.output_text.delta') text += event.delta;
      }
      assert.equal(text, first.output_text);
      assert.deepEqual(types.slice(0, 4), ['response.created', 'response.in_progress', 'response.output_item.added', 'response.content_part.added']);
      assert.deepEqual(types.slice(-4), ['response.output_text.done', 'response.content_part.done', 'response.output_item.done', 'response.incomplete']);
      await openai.responses.delete(first.id);
      await assert.rejects(openai.responses.retrieve(first.id), OpenAI.NotFoundError);
    }),
    holds(RESPONSES, 'functions, whole and streamed, their results, and `text.format`', async () => {
      const flat = tools.map((tool) => ({ type: 'function', strict: true, ...tool.function }));
      const ask = { model: 'stories', input: 'Once upon a time', max_output_tokens: 300, temperature: 0 };
      const called = await openai.responses.create({ ...ask, tools: flat, tool_choice: 'required', parallel_tool_calls: false });
      const call = called.output.find((item) => item.type === 'function_call');
      isPerson(JSON.parse(call.arguments));
      const stream = openai.responses.stream({ ...ask, tools: flat, tool_choice: 'required', parallel_tool_calls: false });
      assert.equal((await stream.finalResponse()).output.find((item) => item.type === 'function_call').arguments, call.arguments);
      const formed = await openai.responses.create({ ...ask, text: { format: { type: 'json_schema', name: 'person', schema: person } } });
      isPerson(JSON.parse(formed.output_text));
      const answered = await openai.responses.create({ ...ask, max_output_tokens: 4, previous_response_id: called.id, input: [{ type: 'function_call_output', call_id: call.call_id, output: 'Hello' }] });
      assert.equal(answered.status, 'incomplete');
    }),
    holds(RESPONSES, 'input items in pages, a stored response as a stream, log-probabilities; `cancel` is refused', async () => {
      const ask = { model: 'stories', input: 'Once upon a time', max_output_tokens: 4, temperature: 0, include: ['message.output_text.logprobs'], top_logprobs: 2 };
      const first = await openai.responses.create(ask);
      assert.ok(first.output[0].content[0].logprobs.length >= 4);
      assert.equal(first.output[0].content[0].logprobs[0].top_logprobs.length, 2);
      const second = await openai.responses.create({ ...ask, input: 'And then', previous_response_id: first.id });
      const items = [];
      for await (const item of openai.responses.inputItems.list(second.id, { order: 'asc', limit: 2 })) items.push(item);
      assert.deepEqual(items.map((item) => item.role), ['user', 'assistant', 'user']);
      const told = [];
      for await (const event of await openai.responses.retrieve(first.id, { stream: true, starting_after: 1 })) told.push(event);
      assert.equal(told[0].type, 'response.output_item.added');
      assert.deepEqual(told.at(-1).response.output, first.output);
      await assert.rejects(openai.responses.cancel(first.id), OpenAI.BadRequestError);
    }),
    holds(RESPONSES, 'custom tools: the input fits its regex, whole and streamed; its result is taken', async () => {
      const ask = { model: 'stories', input: 'Once', max_output_tokens: 100, temperature: 0, tools: [{ type: 'custom', name: 'run', format: { type: 'grammar', syntax: 'regex', definition: '[abc]{2,4}' } }] };
      const called = await openai.responses.create({ ...ask, tool_choice: { type: 'custom', name: 'run' } });
      const call = called.output.find((item) => item.type === 'custom_tool_call');
      assert.match(call.input, /^[abc]{2,4}$/);
      const stream = openai.responses.stream({ ...ask, tool_choice: { type: 'custom', name: 'run' } });
      assert.equal((await stream.finalResponse()).output.find((item) => item.type === 'custom_tool_call').input, call.input);
      await openai.responses.create({ ...ask, max_output_tokens: 4, tool_choice: 'none', previous_response_id: called.id, input: [{ type: 'custom_tool_call_output', call_id: call.call_id, output: 'Hello' }] });
    }),
    holds(RESPONSES, 'fields whose value is the default are taken: `background`, `conversation`, `truncation`, `text.verbosity`', async () => {
      const ask = { model: 'stories', input: 'Once upon a time', max_output_tokens: 4, temperature: 0 };
      const plain = await openai.responses.create(ask);
      const odd = await openai.responses.create({ ...ask, background: false, conversation: null, truncation: 'disabled', text: { verbosity: 'medium' }, max_tool_calls: null, prompt: null });
      assert.equal(odd.output_text, plain.output_text);
    }),
    refused(RESPONSES, 'a wrong type: `BadRequestError` with `param`', () =>
      assert.rejects(openai.responses.create({ model: 'stories', input: 5 }), (error) => error instanceof OpenAI.BadRequestError && error.param === 'input')),
    refused(RESPONSES, 'a previous response that is not there: `param` names it', () =>
      assert.rejects(openai.responses.create({ model: 'stories', input: 'a', previous_response_id: 'resp_0' }), (error) => error.status >= 400 && error.status < 500 && error.param === 'previous_response_id')),
  ];
}
