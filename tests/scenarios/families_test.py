"""Families end to end: a tiny random model in a Hugging Face folder, with the family's published chat template and special tokens, behind
the server. Weights are random, so texts mean nothing; structure, parsing and bits are what holds for published weights, too. Which tokens
a model answers depends on the instruction set: no test relies on them.

Usage: families_test.py MILLRACE SOURCE_DIR [TestClass]. Published templates are read from $MILLRACE_SHARED_DATA, or ../shared/data next to
the checkout; where they are absent, the short ones below take their place.
"""

import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import server_process
import tiny_folder

MILLRACE, SOURCE = sys.argv[1], sys.argv[2]
SHARED = os.environ.get("MILLRACE_SHARED_DATA") or os.path.join(SOURCE, "..", "shared", "data")
CHAT = "/v1/chat/completions"

PERSON = {
    "type": "object",
    "properties": {"name": {"enum": ["Tim", "Lily"]}, "age": {"type": "integer", "minimum": 1, "maximum": 99}, "kind": {"type": "boolean"}},
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "meet", "description": "Meets a person", "parameters": PERSON}},
    {"type": "function", "function": {"name": "leave", "description": "Leaves", "parameters": {"type": "object", "properties": {}}}},
]

SHORT_TEMPLATE = (
    "{%% for m in messages %%}%(turn)s{{ m.role }}\n{{ m.content or '' }}{%% for c in m.tool_calls or [] %%}%(call)s{%% endfor %%}%(end)s\n"
    "{%% endfor %%}{%% if tools %%}{%% for t in tools %%}{{ t | tojson }}{%% endfor %%}%(syntax)s{%% endif %%}"
    "{%% if add_generation_prompt %%}%(answer)s{%% endif %%}"
)


def is_person(value):
    return (set(value) == {"name", "age", "kind"} and value["name"] in ("Tim", "Lily") and isinstance(value["age"], int)
            and 1 <= value["age"] <= 99 and isinstance(value["kind"], bool))


class Family:
    """What holds for every family; classes below say which model. Not a TestCase itself, so that it is not run."""

    golden = ""         # folder in tests/golden
    matrices = ()       # its tensors with a row for each token
    specials = ()       # the family's special tokens
    ends = ()           # those that end an answer
    published = ""      # file of its published chat template
    short_template = {}
    dialect_marks = ()  # of a call in the text of an answer
    fields = {}         # of every request
    flags = ()

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        path = os.path.join(SHARED, "chat-templates", "templates", cls.published)
        template = SHORT_TEMPLATE % cls.short_template
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                template = file.read()
        cls.folder = tiny_folder.write(os.path.join(SOURCE, "tests", "golden", cls.golden), os.path.join(cls.scratch.name, "model"),
                                       cls.specials, cls.ends, template, cls.matrices)
        cls.server = cls.start()

    @classmethod
    def start(cls, *flags):
        server = server_process.Server(MILLRACE, "-m", cls.folder, "--context", "4096", "--max-streams", "8", *cls.flags, *flags)
        cls.addClassCleanup(server.__exit__, None)
        return server

    def body(self, content, **more):
        return {"messages": [{"role": "user", "content": content}], "max_tokens": 300, "temperature": 0.8, "seed": 11, **self.fields, **more}

    def chat(self, body, server=None):
        status, text = (server or self.server).ask("POST", CHAT, body)
        self.assertEqual(status, 200, text)
        return json.loads(text)["choices"][0]

    def events(self, body):
        status, text = self.server.ask("POST", CHAT, {**body, "stream": True})
        self.assertEqual(status, 200, text)
        lines = [line[len("data: "):] for line in text.splitlines() if line.startswith("data: ")]
        self.assertEqual(lines[-1], "[DONE]")
        return [one["choices"][0] for one in map(json.loads, lines[:-1]) if one["choices"]]

    def test_a_chat_and_its_stream(self):
        body = self.body("Where does the water go?", max_tokens=40, ignore_eos=True)
        whole = self.chat(body)
        said = [(whole["message"].get("reasoning_content") or "") + (whole["message"]["content"] or ""), whole["finish_reason"]]
        self.assertTrue(said[0])
        events = self.events(body)
        streamed = "".join((one["delta"].get("reasoning_content") or "") + (one["delta"].get("content") or "") for one in events)
        self.assertEqual([streamed, events[-1]["finish_reason"]], said)

    def test_a_required_call(self):
        named = {"type": "function", "function": {"name": "meet"}}
        for chosen in (named, "required"):
            for seed in range(8):
                choice = self.chat(self.body("Meet someone.", tools=TOOLS, tool_choice=chosen, parallel_tool_calls=False, seed=seed))
                self.assertEqual(choice["finish_reason"], "tool_calls", choice)
                self.assertFalse(choice["message"]["content"], choice)
                (call,) = choice["message"]["tool_calls"]
                arguments = json.loads(call["function"]["arguments"])
                self.assertTrue(is_person(arguments) if call["function"]["name"] == "meet" else arguments == {}, call)
                self.assertTrue(call["function"]["name"] == "meet" or chosen == "required", call)

    def test_several_required_calls(self):
        for seed in range(4):
            choice = self.chat(self.body("Meet someone.", tools=TOOLS, tool_choice="required", seed=seed))
            calls = choice["message"]["tool_calls"]
            complete = calls if choice["finish_reason"] == "tool_calls" else calls[:-1]  # max_tokens may cut the last one
            for call in complete:
                arguments = json.loads(call["function"]["arguments"])
                self.assertTrue(is_person(arguments) if call["function"]["name"] == "meet" else arguments == {}, call)

    def test_a_streamed_call(self):
        body = self.body("Meet someone.", tools=TOOLS, tool_choice={"type": "function", "function": {"name": "meet"}})
        answer = self.chat(body)
        whole, calls = answer["message"]["tool_calls"], {}
        events = self.events(body)
        for event in events:
            for part in event["delta"].get("tool_calls", []):
                one = calls.setdefault(part["index"], {"name": "", "arguments": ""})
                for key in one:
                    one[key] += part["function"].get(key) or ""
        self.assertEqual([calls[i] for i in sorted(calls)], [{key: one["function"][key] for key in ("name", "arguments")} for one in whole])
        self.assertEqual(events[-1]["finish_reason"], answer["finish_reason"])

    def test_a_call_is_written_in_the_family_s_syntax(self):
        # What the model itself wrote, with its special tokens: the prompt of a conversation that contains the call.
        call = {"id": "call_1", "type": "function", "function": {"name": "meet", "arguments": json.dumps({"name": "Tim", "age": 7, "kind": True})}}
        messages = [{"role": "user", "content": "Meet someone."}, {"role": "assistant", "content": None, "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "call_1", "content": "He says hello."}]
        status, text = self.server.ask("POST", "/apply-template", {"messages": messages, "tools": TOOLS, **self.fields})
        self.assertEqual(status, 200, text)
        prompt = json.loads(text)["prompt"]
        for mark in self.dialect_marks:
            self.assertIn(mark, prompt)
        self.assertIn("He says hello.", prompt)
        after = self.chat({**self.body(""), "messages": messages, "tools": TOOLS, "max_tokens": 8})
        self.assertIn(after["finish_reason"], ("length", "stop", "tool_calls"))

    def test_a_schema(self):
        schema = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
        for seed in range(8):
            choice = self.chat(self.body("Describe a person.", response_format=schema, seed=seed))
            self.assertEqual(choice["finish_reason"], "stop", choice)
            self.assertTrue(is_person(json.loads(choice["message"]["content"])), choice)

    def test_among_four_others_the_bits_are_the_same(self):
        body = self.body("Where does the water go?", max_tokens=60, logprobs=True, top_logprobs=3, ignore_eos=True)
        alone = self.chat(body)
        self.assertEqual(len(alone["logprobs"]["content"]), 60)
        other = self.start("--no-prefix-cache") if not self.flags else self.start()
        for _ in range(5):  # until the four others still run when the fifth has ended
            running = self.start_four(other)
            self.assertEqual(self.chat(body, other), alone)
            metrics = other.ask("GET", "/metrics")[1]
            running_now = [line.split()[-1] for line in metrics.splitlines() if line.startswith("millrace_requests_running")]
            for response in running:
                response.close()
            if [float(one) for one in running_now] == [4.0]:
                return
        self.fail(f"the others ended first in every trial: {metrics}")

    def start_four(self, server):
        running = []
        for i in range(4):
            longer = self.body("Once upon a time. " * (3 * i + 1), max_tokens=3000, seed=i, ignore_eos=True, stream=True)
            response = server.request("POST", CHAT, longer)
            self.assertEqual(response.status, 200)
            self.assertTrue(response.readline().startswith(b"data: "))
            running.append(response)
        return running


class Qwen35(Family, unittest.TestCase):
    golden = "draft_heads/mtp_qwen35"  # has a layer for multi-token prediction
    matrices = ("model.embed_tokens.weight", "lm_head.weight")
    specials = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
    ends = ("<|im_end|>", "<|endoftext|>")
    published = "Qwen3.5-4B.jinja"
    short_template = {"turn": "<|im_start|>", "end": "<|im_end|>", "syntax": "<tool_call>\n<function=", "answer": "<|im_start|>assistant\n",
                      "call": "<tool_call>\n<function={{ c.function.name }}>\n{% for k, v in c.function.arguments.items() %}<parameter={{ k }}>\n"
                              "{{ v }}\n</parameter>\n{% endfor %}</function>\n</tool_call>"}
    dialect_marks = ("<tool_call>\n<function=meet>", "<parameter=name>\nTim\n</parameter>", "</function>\n</tool_call>")
    fields = {"chat_template_kwargs": {"enable_thinking": False}}

    def test_thinking_ends_before_the_answer(self):
        schema = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
        choice = self.chat(self.body("Describe a person.", response_format=schema, chat_template_kwargs={"enable_thinking": True}, thinking_token_budget=16))
        self.assertTrue(is_person(json.loads(choice["message"]["content"])), choice)

    def test_its_layer_of_predictions_drafts_the_same_tokens(self):
        drafting = self.start("--drafter", "mtp:k=3")
        schema = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
        for more in ({}, {"temperature": 0}, {"response_format": schema}, {"tools": TOOLS, "tool_choice": "required"}):
            body = self.body("Where does the water go?", max_tokens=120, logprobs=True, **more)
            drafted, plain = self.chat(body, drafting), self.chat(body)
            for one in (drafted, plain):
                for call in one["message"].get("tool_calls") or []:
                    call.pop("id")
            self.assertEqual(drafted, plain)
        metrics = drafting.ask("GET", "/metrics")[1]
        drafted = [float(line.split()[-1]) for line in metrics.splitlines() if line.startswith("millrace_drafted_tokens_total")]
        self.assertGreater(sum(drafted), 0, metrics)


GEMMA4_TURNS = {"turn": "<|turn>", "end": "<turn|>", "syntax": "<|tool_call>call:", "answer": "<|turn>model\n",
                "call": "<|tool_call>call:{{ c.function.name }}{{ '{' }}{% for k, v in c.function.arguments.items() %}{{ k }}:"
                        "{% if v is string %}<|\"|>{{ v }}<|\"|>{% else %}{{ v | tojson }}{% endif %}{% if not loop.last %},{% endif %}{% endfor %}}<tool_call|>"}


class Gemma4(Family, unittest.TestCase):
    golden = "gemma4"
    matrices = ("model.embed_tokens.weight",)
    specials = ("<|turn>", "<turn|>", "<|channel>", "<channel|>", "<|think|>", "<|tool>", "<tool|>", "<|tool_call>", "<tool_call|>",
                "<|tool_response>", "<tool_response|>", '<|"|>')
    ends = ("<turn|>",)
    published = "google-gemma-4-31B-it.jinja"
    short_template = GEMMA4_TURNS
    dialect_marks = ("<|tool_call>call:meet{", 'name:<|"|>Tim<|"|>', "}<tool_call|>")


class Gemma4E(Gemma4):
    """Layers that read the keys of others, and an input for each layer."""
    golden = "gemma4_e"
    matrices = ("model.language_model.embed_tokens.weight",)


class GptOss(Family, unittest.TestCase):
    golden = "gpt_oss"
    matrices = ("model.embed_tokens.weight", "lm_head.weight")
    specials = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>")
    ends = ("<|return|>", "<|call|>")
    published = "openai-gpt-oss-120b.jinja"
    short_template = {"turn": "<|start|>", "end": "<|end|>", "syntax": "<|channel|>analysis<|call|>", "answer": "<|start|>assistant",
                      "call": "<|channel|>commentary to=functions.{{ c.function.name }} <|constrain|>json<|message|>{{ c.function.arguments | tojson }}<|call|>"}
    dialect_marks = ("to=functions.meet", "<|channel|>commentary", "<|message|>{", "<|call|>")
    # Weights that mean nothing would think and comment for hundreds of tokens.
    fields = {"thinking_token_budget": 16, "logit_bias": {str(tiny_folder.GOLDEN_VOCAB + specials.index("<|end|>")): 5}}


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
