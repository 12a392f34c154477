"""Requests of every kind that the server knows, for soak.py: each API, streamed and whole, tools and structured output,
embeddings, adapters and models that come and go, streams that are lost and resumed, and operators' requests.

Each kind is counted: `whole` answers that were read to the end, `left` ones whose reader disconnected, and `refused`
requests.
"""

import http.client
import json
import os
import time

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden")
SHIPPED = os.path.join(GOLDEN, "..", "..", "models", "millrace-stories-6m.gguf")
SECOND = os.path.join(GOLDEN, "llama3", "model.gguf")  # prompted with token ids
ADAPTER = os.path.join(GOLDEN, "lora", "llama3")
# A table for each model (serve --models-file); {first} takes further settings of the first.
MODELS = f"""[stories]
path = "{os.path.abspath(SHIPPED)}"
preload = true
{{first}}
[second]
path = "{os.path.abspath(SECOND)}"
"""

PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
          "required": ["name", "age"], "additionalProperties": False}
TALK = [{"role": "system", "content": "Tell a story."}, {"role": "user", "content": "Once upon a time"}]


class MixedKinds:
    """Mixed into soak.py's Client: its draw, counts, port and taken()."""

    def kinds(self):
        answers = [self.chat, self.messages, self.responses, self.ollama_chat, self.ollama_generate, self.llama_completion, self.tools, self.structured,
                   self.second_model, self.adapter, self.lost_and_read_on]
        others = [self.embeddings, self.small_questions, self.adapter_comes_and_goes, self.model_goes, self.operator, self.watches, self.lost_and_removed]
        return answers + others

    def ask(self, method, path, body=None, key=None, headers=None):
        """The connection, and the response where it is no refusal."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        text = json.dumps(body) if body is not None else None
        connection.request(method, path, text, {"Authorization": "Bearer " + (key or self.draw.choice("abc")), **(headers or {})})
        return connection, self.taken(connection)

    def answer(self, path, body, end=None, key=None):
        """One answer: streamed or whole, now and then left. `end`: what an event stream of this API ends with."""
        stream = bool(body.get("stream"))
        connection, response = self.ask("POST", path, body, key)
        text = b""
        if response and stream and self.draw.random() < 0.2:
            response.read(self.draw.randrange(1, 800))
            self.counts.add("left")
            self.counts.add("left requests")
            response.close()
        elif response:
            text = response.read()
            last = text.rstrip().rpartition(b"\n\n")[2] + b"\n\n" if b"\n\n" in text else text[-600:]
            assert text and (not stream or end is None or end in last), (path, text[-300:])
            self.counts.add("whole")
        connection.close()
        return None if stream or not text else json.loads(text)

    def more(self, **fields):
        return {"temperature": self.draw.choice([0, 0.9]), "stream": self.draw.random() < 0.5, **fields}

    def length(self):
        return self.draw.randrange(1, 60)

    def chat(self):
        self.answer("/v1/chat/completions", self.more(messages=TALK, max_tokens=self.length(), logprobs=self.draw.random() < 0.2), b"data: [DONE]\n\n")

    def messages(self):
        self.answer("/v1/messages", self.more(model="stories", messages=TALK[1:], system="Tell.", max_tokens=self.length()), b"event: message_stop")

    def responses(self):
        asked = self.more(input="Once upon a time", max_output_tokens=max(16, self.length()))
        reply = self.answer("/v1/responses", asked, b'"usage":', key="a")
        if reply and self.draw.random() < 0.5:
            self.answer("/v1/responses", self.more(input="And then?", previous_response_id=reply["id"], max_output_tokens=16), b'"usage":', key="a")

    def ollama_chat(self):
        self.answer("/api/chat", {**self.more(model="stories", messages=TALK), "options": {"num_predict": self.length()}}, b'"done":true')

    def ollama_generate(self):
        self.answer("/api/generate", {**self.more(model="stories", prompt="Once upon a time"), "options": {"num_predict": self.length()}}, b'"done":true')

    def llama_completion(self):
        self.answer("/completion", self.more(prompt="One day", n_predict=self.length(), n_probs=self.draw.choice([0, 0, 3])), b'"stop":true')

    def tools(self):
        tool = {"type": "function", "function": {"name": "meet", "description": "meets somebody", "parameters": PERSON}}
        self.answer("/v1/chat/completions", self.more(messages=TALK, tools=[tool], tool_choice=self.draw.choice(["auto", "required"]), max_tokens=60), b"data: [DONE]\n\n")

    def structured(self):
        shape = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}
        reply = self.answer("/v1/chat/completions", self.more(messages=TALK, response_format=shape, max_tokens=100), b"data: [DONE]\n\n")
        if reply and reply["choices"][0]["finish_reason"] == "stop":
            assert set(json.loads(reply["choices"][0]["message"]["content"])) == {"name", "age"}

    def second_model(self):
        self.answer("/v1/completions", self.more(model="second", prompt=[1, 2, 3, self.draw.randrange(60)], max_tokens=self.length(), ignore_eos=True))

    def adapter(self):
        self.answer("/v1/completions", self.more(model="alpha", prompt=[1, 2, 3, 4], max_tokens=self.length(), ignore_eos=True))

    def question(self, method, path, body=None, key=None):
        connection, response = self.ask(method, path, body, key)
        if response:
            response.read()
            self.counts.add("questions")
        connection.close()
        return response is not None

    def embeddings(self):
        self.question("POST", "/v1/embeddings", {"input": ["Once upon a time", "a dog"], "encoding_format": self.draw.choice(["float", "base64"])})

    def small_questions(self):
        for path, body in (("/tokenize", {"content": "Once upon a time"}), ("/apply-template", {"messages": TALK}), ("/score", {"text_1": "a dog", "text_2": "a cat"}),
                           ("/v1/messages/count_tokens", {"model": "stories", "messages": TALK[1:]})):
            self.question("POST", path, body)
        for path in ("/v1/models", "/api/tags", "/api/ps", "/props", "/health", "/openapi.json"):
            self.question("GET", path)

    def adapter_comes_and_goes(self):
        """Several may do so at once: what one has unloaded, another does not find."""
        if self.question("POST", "/v1/load_lora_adapter", {"model": "second", "lora_name": "alpha", "lora_path": ADAPTER}, "o"):
            self.adapter()
            self.adapter()
            self.question("POST", "/v1/unload_lora_adapter", {"model": "second", "lora_name": "alpha"}, "o")

    def model_goes(self):
        self.question("POST", "/models/unload", {"model": "second"}, "o")
        self.second_model()

    def operator(self):
        for path in ("/metrics", "/slots", "/health/ready", "/load"):
            self.question("GET", path, key="o")

    def watches(self):
        connection, response = self.ask("GET", "/live", key="o")
        if response:
            for _ in range(self.draw.randrange(1, 4)):
                response.read(2000)
            self.counts.add("watched")
            response.close()
        connection.close()

    def lose(self):
        """A stream that goes on without its reader; its id and key, or none where it was refused."""
        name, key = f"talk-{self.draw.randrange(1 << 60)}", self.draw.choice("abc")
        asked = {"messages": TALK, "max_tokens": 80, "ignore_eos": True, "stream": True}
        connection, response = self.ask("POST", "/v1/chat/completions", asked, key, {"X-Conversation-Id": name})
        if response:
            response.read(self.draw.randrange(1, 2000))
            response.close()
        connection.close()
        return (name, key) if response else None

    def lost_and_read_on(self):
        lost = self.lose()
        if not lost:
            return
        if self.draw.random() < 0.5:
            time.sleep(0.05)
        connection, response = self.ask("GET", f"/v1/stream/{lost[0]}?from=0", key=lost[1])
        assert response, "a stream that was lost is not there"
        assert response.read().endswith(b"data: [DONE]\n\n")
        self.counts.add("whole")
        self.counts.add("read on")
        connection.close()

    def lost_and_removed(self):
        lost = self.lose()
        if lost:
            self.counts.add("left")
            self.counts.add("left requests")
            self.question("DELETE", f"/v1/stream/{lost[0]}", key=lost[1])
