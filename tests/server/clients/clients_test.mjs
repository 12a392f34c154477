// The official clients of OpenAI, Anthropic and Ollama against a live server: answers, streams, errors, aborts.
//   node clients_test.mjs path/to/millrace        exit status 77: a package is not there (npm ci)
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

let OpenAI, Anthropic, Ollama, toFile;
try {
  ({ default: OpenAI, toFile } = await import('openai'));
  ({ default: Anthropic } = await import('@anthropic-ai/sdk'));
  ({ Ollama } = await import('ollama'));
} catch (error) {
  console.log(`skipped: ${error.message}; run npm ci in tests/server/clients`);
  process.exit(77);
}

const KEY = 'a-key-for-tests';
const folder = mkdtempSync(join(tmpdir(), 'millrace-files-'));
const server = spawn(process.argv[2], ['serve', '--port', '0', '-t', '1', '--name', 'stories', '--api-key', KEY, '--files-dir', folder], { stdio: ['ignore', 'pipe', 'inherit'] });
const exited = new Promise((resolve) => server.on('exit', (code) => resolve(code)));
const url = await new Promise((resolve, reject) => {
  createInterface({ input: server.stdout }).on('line', (line) => line.includes(' at http') && resolve(line.split(' at ')[1]));
  exited.then((code) => reject(new Error(`the server left with ${code}`)));
});

const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: KEY, maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey: KEY, maxRetries: 0 });
const ollama = new Ollama({ host: url, headers: { Authorization: `Bearer ${KEY}` } });

const messages = [{ role: 'user', content: 'Once upon a time' }];
const same = { model: 'stories', messages, max_tokens: 8, temperature: 0 };
const person = { type: 'object', properties: { name: { type: 'string', enum: ['Tim', 'Lily'] }, age: { type: 'integer', minimum: 1, maximum: 9 } }, required: ['name', 'age'], additionalProperties: false };
const tools = [{ type: 'function', function: { name: 'meet', description: 'meets somebody', parameters: person } }];
const isPerson = (value) => {
  assert.deepEqual(Object.keys(value).sort(), ['age', 'name']);
  assert.ok(['Tim', 'Lily'].includes(value.name) && value.age >= 1 && value.age <= 9);
};
const metric = async (name) => {
  const text = await (await fetch(`${url}/metrics`, { headers: { 'x-api-key': KEY } })).text();
  return Number(text.split('\n').find((line) => new RegExp(`^${name}[ {]`).test(line)).split(' ').at(-1));
};
const becomes = async (check) => {
  for (let i = 0; i < 600; ++i) {
    if (await check()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.fail('it never came true');
};

const cases = {
  async 'openai: chat'() {
    const answer = await openai.chat.completions.create(same);
    assert.equal(answer.choices[0].finish_reason, 'length');
    assert.equal(answer.usage.completion_tokens, 8);
    assert.ok(answer.choices[0].message.content.length > 0);
  },
  async 'openai: a stream has the same text, and usage'() {
    const whole = await openai.chat.completions.create(same);
    let text = '', usage = null;
    for await (const chunk of await openai.chat.completions.create({ ...same, stream: true, stream_options: { include_usage: true } })) {
      text += chunk.choices[0]?.delta?.content ?? '';
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, whole.choices[0].message.content);
    assert.equal(usage.completion_tokens, 8);
  },
  async 'openai: the stream helper'() {
    const answer = await openai.chat.completions.stream(same).finalChatCompletion();
    assert.equal(answer.choices[0].finish_reason, 'length');
  },
  async 'openai: n, seed, logprobs, stop'() {
    const ask = { ...same, temperature: 1, n: 2, seed: 7, logprobs: true, top_logprobs: 3, stop: ['zzz'] };
    const first = await openai.chat.completions.create(ask), second = await openai.chat.completions.create(ask);
    assert.equal(first.choices.length, 2);
    assert.deepEqual(first.choices, second.choices);
    assert.equal(first.choices[0].logprobs.content[0].top_logprobs.length, 3);
  },
  async 'openai: completions, echo and scoring'() {
    const answer = await openai.completions.create({ model: 'stories', prompt: ['One day', 'Once'], max_tokens: 0, echo: true, logprobs: 1 });
    assert.deepEqual(answer.choices.map((choice) => choice.text), ['One day', 'Once']);
    assert.equal(answer.choices[0].logprobs.token_logprobs[0], null);
  },
  async 'openai: models'() {
    assert.deepEqual((await openai.models.list()).data.map((model) => model.id), ['stories']);
    assert.equal((await openai.models.retrieve('stories')).id, 'stories');
  },
  async 'openai: errors are of the right class'() {
    await assert.rejects(openai.chat.completions.create({ ...same, temperature: 'hot' }), (error) => error instanceof OpenAI.BadRequestError && error.param === 'temperature');
    await assert.rejects(openai.chat.completions.create({ ...same, model: 'gpt-0' }), (error) => error instanceof OpenAI.NotFoundError && error.code === 'model_not_found');
    await assert.rejects(new OpenAI({ baseURL: `${url}/v1`, apiKey: 'wrong', maxRetries: 0 }).models.list(), OpenAI.AuthenticationError);
    await assert.rejects(openai.chat.completions.create({ ...same, tools: [] }), (error) => error.status === 400 && error.param === 'tools');
  },
  async 'openai: an abort ends the work'() {
    const stream = await openai.chat.completions.create({ ...same, max_tokens: 1000, ignore_eos: true, stream: true });
    for await (const chunk of stream) {
      assert.ok(chunk.choices.length > 0);
      break;  // the client closes the connection
    }
    await becomes(async () => (await metric('millrace_requests_running')) === 0);
  },
  async 'openai: completions, the best of several and beams'() {
    const best = await openai.completions.create({ model: 'stories', prompt: 'One day', max_tokens: 4, best_of: 3, n: 1, seed: 1 });
    assert.equal(best.choices.length, 1);
    const beams = await openai.completions.create({ model: 'stories', prompt: 'One day', max_tokens: 4, n: 2, use_beam_search: true });
    assert.equal(beams.choices.length, 2);
    await assert.rejects(openai.completions.create({ model: 'stories', prompt: 'One day', suffix: 'the end' }), (error) => error.status === 501 && error.message.includes('fill in'));
  },
  async 'openai: embeddings, which this client asks for in base64'() {
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
    await assert.rejects(openai.embeddings.create({ model: 'stories', input: [] }), (error) => error instanceof OpenAI.BadRequestError && error.param === 'input');
  },
  async 'openai: files and a batch'() {
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
    await assert.rejects(openai.batches.create({ input_file_id: file.id, endpoint: '/v1/completions', completion_window: '24h' }), OpenAI.BadRequestError);
  },
  async 'openai: a stream is read on after its connection was lost'() {
    const headers = { 'X-Conversation-Id': 'client-1' };
    const ask = { ...same, max_tokens: 30, ignore_eos: true };
    const whole = (await openai.chat.completions.create(ask)).choices[0].message.content;
    for await (const chunk of await openai.chat.completions.create({ ...ask, stream: true }, { headers })) {
      assert.ok(chunk.choices.length > 0);
      break;  // the client closes the connection
    }
    const rest = await (await fetch(`${url}/v1/stream/client-1?from=0`, { headers: { Authorization: `Bearer ${KEY}` } })).text();
    const events = rest.split('\n').filter((line) => line.startsWith('data: {')).map((line) => JSON.parse(line.slice(6)));
    assert.equal(events.map((event) => event.choices[0]?.delta?.content ?? '').join(''), whole);
    assert.ok(rest.endsWith('data: [DONE]\n\n'));
  },
  async 'openai: structured output'() {
    const answer = await openai.chat.completions.create({ ...same, max_tokens: 200, response_format: { type: 'json_schema', json_schema: { name: 'person', strict: true, schema: person } } });
    assert.equal(answer.choices[0].finish_reason, 'stop');
    isPerson(JSON.parse(answer.choices[0].message.content));
    await assert.rejects(openai.chat.completions.create({ ...same, response_format: { type: 'json_schema', json_schema: { name: 'x', schema: { type: 'nothing' } } } }),
      (error) => error instanceof OpenAI.BadRequestError && error.param === 'response_format.json_schema.schema');
  },
  async 'openai: a tool that must be called, whole and streamed'() {
    const ask = { ...same, max_tokens: 300, tools, tool_choice: { type: 'function', function: { name: 'meet' } } };
    const answer = await openai.chat.completions.create(ask);
    assert.equal(answer.choices[0].finish_reason, 'tool_calls');
    const call = answer.choices[0].message.tool_calls[0];
    assert.equal(call.function.name, 'meet');
    isPerson(JSON.parse(call.function.arguments));
    const stream = openai.chat.completions.stream(ask);
    const streamed = (await stream.finalChatCompletion()).choices[0].message.tool_calls[0];
    assert.equal(streamed.function.arguments, call.function.arguments);
    const next = await openai.chat.completions.create({ ...same, tools, tool_choice: 'none', messages: [...messages, answer.choices[0].message, { role: 'tool', tool_call_id: call.id, content: 'Hello' }] });
    assert.equal(next.choices[0].finish_reason, 'length');
  },
  async 'openai: responses, stored and streamed'() {
    const ask = { model: 'stories', input: 'Once upon a time', max_output_tokens: 8, temperature: 0 };
    const first = await openai.responses.create(ask);
    assert.equal(first.output_text, (await openai.chat.completions.create(same)).choices[0].message.content);
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
  },
  async 'openai: responses with functions and a format'() {
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
  },
  async 'anthropic: tools, whole and streamed'() {
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
  },
  async 'ollama: a format'() {
    const answer = await ollama.chat({ model: 'stories', messages, format: person, options: { temperature: 0, num_predict: 200 } });
    isPerson(JSON.parse(answer.message.content));
  },
  async 'anthropic: messages'() {
    const answer = await anthropic.messages.create(same);
    assert.equal(answer.stop_reason, 'max_tokens');
    assert.equal(answer.usage.output_tokens, 8);
    assert.equal(answer.content[0].text, (await openai.chat.completions.create(same)).choices[0].message.content);
  },
  async 'anthropic: a stream'() {
    const whole = await anthropic.messages.create(same);
    const stream = anthropic.messages.stream(same);
    let text = '';
    stream.on('text', (part) => (text += part));
    const last = await stream.finalMessage();
    assert.equal(text, whole.content[0].text);
    assert.equal(last.stop_reason, 'max_tokens');
  },
  async 'anthropic: counting'() {
    const counted = await anthropic.messages.countTokens({ model: 'stories', messages });
    assert.equal(counted.input_tokens, (await openai.chat.completions.create(same)).usage.prompt_tokens);
  },
  async 'anthropic: errors are of the right class'() {
    await assert.rejects(anthropic.messages.create({ ...same, max_tokens: 0 }), Anthropic.BadRequestError);
    await assert.rejects(new Anthropic({ baseURL: url, apiKey: 'wrong', maxRetries: 0 }).messages.create(same), Anthropic.AuthenticationError);
    await assert.rejects(anthropic.messages.create({ ...same, model: 'other' }), Anthropic.NotFoundError);
  },
  async 'ollama: chat, whole and streamed'() {
    const ask = { model: 'stories', messages, options: { temperature: 0, num_predict: 8 } };
    const whole = await ollama.chat(ask);
    assert.equal(whole.done_reason, 'length');
    let text = '';
    for await (const part of await ollama.chat({ ...ask, stream: true })) text += part.message.content;
    assert.equal(text, whole.message.content);
    assert.equal(text, (await openai.chat.completions.create(same)).choices[0].message.content);
  },
  async 'ollama: generate, list, show, ps, version'() {
    const answer = await ollama.generate({ model: 'stories', prompt: 'Once upon a time', options: { temperature: 0, num_predict: 4 } });
    assert.equal(answer.eval_count, 4);
    assert.equal((await ollama.list()).models[0].name, 'stories');
    assert.equal((await ollama.show({ model: 'stories' })).model_info['general.architecture'], 'llama');
    assert.equal((await ollama.ps()).models.length, 1);
    assert.ok((await ollama.version()).version);
  },
  async 'ollama: embed'() {
    const answer = await ollama.embed({ model: 'stories', input: ['Once upon a time', 'One day'] });
    const openais = await openai.embeddings.create({ model: 'stories', input: 'One day', encoding_format: 'float' });
    assert.deepEqual(answer.embeddings[1], openais.data[0].embedding);
    assert.ok(answer.prompt_eval_count > 0);
    assert.equal((await ollama.embeddings({ model: 'stories', prompt: 'One day' })).embedding.length, answer.embeddings[0].length);
  },
  async 'ollama: errors'() {
    await assert.rejects(ollama.chat({ model: 'other', messages }), (error) => error.status_code === 404 && error.message.includes('other'));
  },
};

let failed = 0;
for (const [name, run] of Object.entries(cases)) {
  try {
    await run();
    console.log(`ok      ${name}`);
  } catch (error) {
    ++failed;
    console.log(`FAILED  ${name}\n${error.stack}`);
  }
}
server.kill('SIGTERM');
const code = await exited;
if (code !== 0) {
  ++failed;
  console.log(`FAILED  the server left with ${code} after SIGTERM`);
}
rmSync(folder, { recursive: true, force: true });
console.log(`${Object.keys(cases).length - failed} of ${Object.keys(cases).length} cases passed`);
process.exit(failed ? 1 : 0);
