#!/usr/bin/env python3
"""The models on a machine: list, show, create, cp, rm, ps and stop, and Ollama's management calls over the same store.

Usage: store_test.py MILLRACE_BINARY SOURCE_FOLDER [TestClass]. Uses the tiny golden models only, and a hub on loopback.
"""

import hashlib
import http.client
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import server_process  # noqa: E402
from cli import BINARY, LLAMA, SOURCE, write  # noqa: E402

QWEN = os.path.join(SOURCE, "tests/golden/qwen2")


class Hub:
    """One repository, owner/name, with one GGUF file."""

    def __init__(self, data, name="m-Q4_K_M.gguf"):
        hub = self
        self.commit = "c" * 40
        self.listing = {"sha": self.commit, "siblings": [{"rfilename": name, "size": len(data), "blobId": "0" * 40,
                                                          "lfs": {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}}]}

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                listed = self.path.startswith("/api/models/owner/name/revision/")
                if not listed and "/resolve/" not in self.path:
                    return self.send_error(404)
                body = json.dumps(hub.listing).encode() if listed else data
                if not listed and self.headers.get("Range"):
                    first, last = (int(x) for x in self.headers["Range"].removeprefix("bytes=").split("-"))
                    body = data[first:last + 1]
                    self.send_response(206)
                    self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
                else:
                    self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                return self.wfile.write(body)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


class Stored(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.saved = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(self.saved)))
        os.environ.update({"MILLRACE_MODELS": os.path.join(self.folder, "store"), "HF_HOME": os.path.join(self.folder, "hf")})
        os.environ.pop("HF_HUB_CACHE", None)

    def run_it(self, *arguments, code=0, stdin=b""):
        done = subprocess.run([BINARY, *arguments], input=stdin, capture_output=True, timeout=120, check=False)
        self.assertEqual(done.returncode, code, f"{arguments}: {done.stderr.decode()}")
        return done.stdout.decode() if code == 0 else done.stderr.decode()

    def json_of(self, *arguments):
        return json.loads(self.run_it(*arguments))

    def names(self):
        return [model["name"] for model in self.json_of("list", "--json")["models"]]

    def create(self, name, text):
        return self.run_it("create", name, "-f", write(self.folder, "Modelfile", text))


class Sources(Stored):
    """What FROM, DRAFT and cp name."""

    def answer(self, name):
        return self.json_of("run", "-m", name, "-p", "ab", "-n", "3", "--temp", "0", "-t", "1", "--json")["tokens"]

    def test_a_file_without_the_suffix_gguf(self):
        shutil.copy(LLAMA, os.path.join(self.folder, "plainfile"))
        self.create("plain", "FROM ./plainfile\nDRAFT ./plainfile\n")
        self.assertEqual(self.answer("plain"), self.answer(LLAMA))
        self.run_it("cp", "plain", "again")
        self.assertEqual(self.answer("again"), self.answer(LLAMA))
        self.assertEqual(self.json_of("show", "again", "--json")["architecture"], "llama")
        write(self.folder, "notes", "these are not weights")
        self.run_it("create", "notes", "-f", write(self.folder, "Modelfile", "FROM ./notes\n"), code=3)

    def test_a_name_comes_before_a_file(self):
        """`FROM lab` is the built-in model also where the folder has a file or folder of this name; ./lab is that one."""
        shutil.copy(LLAMA, os.path.join(self.folder, "lab"))
        self.create("a", "FROM lab\n")
        self.assertEqual(self.json_of("show", "a", "--json")["bytes"], 0)
        self.create("b", "FROM ./lab\n")
        self.assertEqual(self.json_of("show", "b", "--json")["bytes"], os.path.getsize(LLAMA))
        os.mkdir(os.path.join(self.folder, "a"))  # nor does a folder hide a model of the store
        self.create("c", "FROM a\n")
        self.assertEqual(self.answer("c"), self.answer("lab"))
        shutil.copy(LLAMA, os.path.join(self.folder, "other"))  # no model has this name
        self.create("d", "FROM other\n")
        self.assertEqual(self.answer("d"), self.answer(LLAMA))
        os.environ["HOME"] = self.folder
        self.create("e", "FROM ~/other\n")
        self.assertEqual(self.answer("e"), self.answer(LLAMA))

    def test_a_client_names_no_file_of_the_server(self):
        shutil.copy(LLAMA, os.path.join(self.folder, "private"))
        before = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, before)
        with server_process.Server(os.path.join(before, BINARY), "--store", model="stories") as server:
            status, text = server.ask("POST", "/api/create", {"model": "x", "from": "private"})
            self.assertEqual(status, 400, text)
            self.assertIn("is not a model on this machine", text)
            self.assertEqual(server.ask("POST", "/api/copy", {"source": "stories", "destination": "mine"})[0], 200)
            self.assertEqual(server.ask("POST", "/api/copy", {"source": "", "destination": "mine"})[0], 404)

    def test_a_built_in_model_gets_a_second_name(self):
        self.run_it("cp", "lab", "mine")
        self.assertEqual(self.answer("mine"), self.answer("lab"))
        self.assertIn("no such model", self.run_it("cp", "nobody", "x", code=2))

    def test_a_file_of_several_models_is_counted_once(self):
        self.create("one", f"FROM {LLAMA}\n")
        size = self.run_it("list").splitlines()[-1].split(", ")[1]
        self.run_it("cp", "one", "two")
        self.assertEqual(self.run_it("list").splitlines()[-1], f"2 models, {size}")
        found = {one["topic"]: one["text"] for one in self.json_of("doctor", "--quick", "--json")["findings"]}
        self.assertIn(f"2 on this machine, {os.path.getsize(LLAMA) * 1e-9:.1f} GB", found["models"])


class Commands(Stored):
    def test_create_list_show_cp_rm(self):
        self.assertIn("no models yet", self.run_it("list"))
        self.create("pirate", f"FROM {LLAMA}\nPARAMETER temperature 0\nPARAMETER num_predict 4\nPARAMETER stop zz\nSYSTEM \"\"\"You are\na pirate.\"\"\"\n")
        self.assertEqual(self.names(), ["pirate"])
        shown = self.json_of("show", "pirate", "--json")
        self.assertEqual(shown["system"], "You are\na pirate.")
        self.assertEqual(shown["bytes"], os.path.getsize(LLAMA))
        self.assertIn({"name": "temperature", "value": "0"}, shown["defaults"])
        again = self.run_it("show", "pirate", "--modelfile")
        self.run_it("create", "again:v2", "-f", "-", stdin=again.encode())
        self.assertEqual(self.json_of("show", "again:v2", "--json")["system"], shown["system"])
        self.run_it("cp", "pirate", "team/parrot")
        self.assertEqual(self.names(), ["again:v2", "pirate", "team/parrot"])
        used = sum(os.stat(os.path.join(root, name)).st_size / os.stat(os.path.join(root, name)).st_nlink
                   for root, _, names in os.walk(os.environ["MILLRACE_MODELS"]) for name in names)
        self.assertLess(used, 1.9 * os.path.getsize(LLAMA))  # the names share one file
        self.run_it("rm", "pirate", "again:v2")
        self.assertEqual(self.names(), ["team/parrot"])
        self.assertEqual(self.json_of("show", "team/parrot", "--json")["system"], shown["system"])

    def test_the_name_is_a_model_everywhere(self):
        self.create("small", f"FROM {LLAMA}\nPARAMETER temperature 0\nPARAMETER num_predict 3\nPARAMETER num_ctx 64\n")
        self.assertEqual(self.json_of("list", "--json")["models"][0]["last_used"], 0)
        out = self.json_of("run", "-m", "small", "-p", "ab", "-t", "1", "--ignore-eos", "--json")
        plain = self.json_of("run", "-m", LLAMA, "-p", "ab", "-t", "1", "--ignore-eos", "--json", "--temp", "0", "-n", "3")
        self.assertEqual(out["tokens"], plain["tokens"])
        self.assertEqual(len(self.json_of("run", "-m", "small", "-p", "ab", "-t", "1", "--ignore-eos", "--json", "-n", "5")["tokens"]), 5)
        self.assertGreater(self.json_of("list", "--json")["models"][0]["last_used"], 0)
        self.assertEqual(self.json_of("inspect", "small", "--json")["architecture"], "llama")
        self.assertTrue(self.json_of("tokenize", "-m", "small", "--json", "ab")["tokens"])

    def test_several_from_lines_and_a_draft(self):
        projector = os.path.join(self.folder, "mmproj.gguf")
        with open(projector, "wb") as file:  # GGUF version 3 without tensors, with one key
            text = lambda value: len(value).to_bytes(8, "little") + value
            file.write(b"GGUF" + (3).to_bytes(4, "little") + (0).to_bytes(8, "little") + (1).to_bytes(8, "little")
                       + text(b"general.architecture") + (8).to_bytes(4, "little") + text(b"clip"))
        text = f"FROM {LLAMA}\nFROM ./mmproj.gguf\nDRAFT {LLAMA}\nPARSER harmony\nPARAMETER temperature 0\nPARAMETER num_predict 8\n"
        done = subprocess.run([BINARY, "create", "pair", "-f", write(self.folder, "pair", text)], capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("mmproj.gguf: left out: it holds the part of a model that reads pictures", done.stderr.decode())
        self.assertIn("PARSER (line 4): has no effect", done.stderr.decode())
        shown = self.run_it("show", "pair", "--modelfile")
        self.assertIn("\nDRAFT ", shown)
        self.assertIn("\nPARSER harmony\n", shown)
        self.run_it("create", "again", "-f", "-", stdin=shown.encode())
        again = self.run_it("show", "again", "--modelfile")
        self.assertEqual(again.replace("/again/", "/pair/"), shown)
        # The draft drafts wherever no flag says otherwise.
        ask = ("run", "-p", "ab", "-t", "1", "--ignore-eos", "--json", "-m")
        drafted, plain = self.json_of(*ask, "pair"), self.json_of(*ask, "pair", "--drafter", "none")
        self.assertEqual(drafted["tokens"], plain["tokens"])
        self.assertGreater(drafted["speculation"]["accepted"], 0)
        self.assertEqual(plain.get("speculation", {}).get("drafted", 0), 0)
        self.create("base", f"FROM {LLAMA}\n")
        self.create("last", f"FROM {LLAMA}\nFROM stories\nFROM base\n")  # a name is the base, the last one of several
        self.assertEqual(self.json_of("show", "last", "--json")["architecture"], "llama")
        self.assertEqual(self.json_of("show", "last", "--json")["from"], "base")
        two = f"FROM {LLAMA}\nFROM {QWEN}\n"
        self.assertIn("is not a part of the model", self.run_it("create", "x", "-f", write(self.folder, "two", two), code=2))
        self.assertIn("DRAFT nobody", self.run_it("create", "x", "-f", write(self.folder, "draft", f"FROM {LLAMA}\nDRAFT nobody\n"), code=2))

    def test_errors(self):
        self.assertIn("did you mean pirate?", (self.create("pirate", f"FROM {LLAMA}\n"), self.run_it("show", "pirat", code=2))[1])
        self.assertIn("no such model", self.run_it("rm", "nobody", code=2))
        for text, message in (("PARAMETER temperature 1\n", "FROM is missing"), ("FROM nobody\n", "FROM nobody: no such file"),
                              (f"FROM {LLAMA}\nPARAMETER temperature hot\n", "temperature"), (f"FROM {LLAMA}\nPARAMETER warmth 1\n", "warmth"),
                              (f"FROM {LLAMA}\nFORM x\n", "line 2: FORM: unknown instruction"), (f"FROM {LLAMA}\nSYSTEM \"\"\"open\n", "closing"),
                              (f"FROM {LLAMA}\nSYSTEM\n", "needs a value")):
            self.assertIn(message, self.run_it("create", "x", "-f", write(self.folder, "bad", text), code=2))
        self.assertIn("built-in", self.run_it("create", "lab", "-f", write(self.folder, "good", f"FROM {LLAMA}\n"), code=2))
        self.run_it("create", "../x", "-f", os.path.join(self.folder, "good"), code=2)
        self.run_it("create", "x", "-f", write(self.folder, "lora", f"FROM {LLAMA}\nADAPTER ./none.gguf\n"), code=3)
        self.assertEqual(self.names(), ["pirate"])
        done = subprocess.run([BINARY, "create", "go", "-f", write(self.folder, "go", f"FROM {LLAMA}\nTEMPLATE {{{{ .Prompt }}}}\n")], capture_output=True, check=True)
        self.assertIn("Go template", done.stderr.decode())

    def test_folders_and_built_in_models(self):
        self.create("folder", f"FROM {QWEN}\n")
        self.assertEqual(self.json_of("show", "folder", "--json")["architecture"], self.json_of("inspect", QWEN, "--json")["architecture"])
        self.create("mine", "FROM stories\nPARAMETER seed 7\n")
        self.assertEqual(self.json_of("show", "mine", "--json")["path"], "stories")

    def test_downloads_are_models_too(self):
        with open(LLAMA, "rb") as file:
            data = file.read()
        with Hub(data) as hub:
            os.environ["HF_ENDPOINT"] = hub.url
            self.run_it("pull", "owner/name")
            self.assertEqual(self.names(), ["owner/name:Q4_K_M"])
            self.json_of("run", "-hf", "owner/name:Q4_K_M", "-p", "a", "-n", "1", "-t", "1", "--json")
        os.environ["HF_ENDPOINT"] = "http://127.0.0.1:9"  # from here on the cache must do
        self.json_of("run", "-m", "owner/name:Q4_K_M", "-p", "a", "-n", "1", "-t", "1", "--json")
        self.run_it("cp", "owner/name:Q4_K_M", "short")
        self.run_it("rm", "owner/name:Q4_K_M")
        self.assertEqual(self.names(), ["short"])
        self.json_of("run", "-m", "short", "-p", "a", "-n", "1", "-t", "1", "--json")


class Served(Stored):
    def server(self, *flags):
        return self.enterContext(server_process.Server(BINARY, "-m", "stories", "--store", *flags))

    def listed(self, server):
        return sorted(model["name"] for model in json.loads(server.ask("GET", "/api/tags")[1])["models"])

    def lines(self, server, path, body):
        status, text = server.ask("POST", path, body)
        self.assertEqual(status, 200, text)
        return [json.loads(line) for line in text.splitlines()]

    def raw(self, server, method, path, body=b""):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request(method, path, body)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, text

    def test_models_of_the_store_are_served(self):
        self.create("calm", f"FROM {LLAMA}\nPARAMETER temperature 0\nPARAMETER num_predict 3\nSYSTEM be brief\n")
        server = self.server()
        self.assertIn("calm", self.listed(server))
        ask = {"model": "calm", "messages": [{"role": "user", "content": "ab"}], "stream": False}
        answer = json.loads(server.ask("POST", "/api/chat", ask)[1])
        self.assertEqual(answer["eval_count"], 3)
        explicit = {**ask, "messages": [{"role": "system", "content": "be brief"}, *ask["messages"]], "options": {"temperature": 0, "num_predict": 3}}
        self.assertEqual(json.loads(server.ask("POST", "/api/chat", explicit)[1])["message"], answer["message"])
        other = {**explicit, "messages": [{"role": "system", "content": "be loud"}, *ask["messages"]]}
        self.assertNotEqual(json.loads(server.ask("POST", "/api/chat", other)[1])["prompt_eval_count"], 0)
        shown = json.loads(server.ask("POST", "/api/show", {"model": "calm"})[1])
        self.assertEqual(shown["system"], "be brief")
        self.assertIn("temperature", shown["parameters"])
        self.assertIn("SYSTEM be brief", shown["modelfile"])
        url = f"http://127.0.0.1:{server.port}"
        loaded = self.run_it("ps", "--url", url)
        self.assertIn("calm", loaded)
        self.assertIn("never", loaded)
        self.assertIn("unloaded", self.run_it("stop", "calm", "--url", url))
        self.assertNotIn("calm", [model["name"] for model in self.json_of("ps", "--json", "--url", url)["models"]])

    def test_a_server_without_a_named_model_has_the_store(self):
        self.create("calm", f"FROM {LLAMA}\n")
        with server_process.Server(BINARY, model=None) as server:
            self.assertIn("calm", self.listed(server))
            self.assertEqual(server.ask("POST", "/api/copy", {"source": "calm", "destination": "calm2"})[0], 200)
        with server_process.Server(BINARY, "--no-store", model=None) as server:
            self.assertNotIn("calm", self.listed(server))

    def test_create_copy_delete(self):
        server = self.server()
        self.assertEqual(self.lines(server, "/api/create", {"model": "tale", "from": "stories", "system": "x", "parameters": {"temperature": 0, "stop": ["a", "b"]}})[-1],
                         {"status": "success"})
        self.assertIn("tale", self.listed(server))
        self.assertIn({"name": "stop", "value": "b"}, self.json_of("show", "tale", "--json")["defaults"])
        self.assertEqual(server.ask("POST", "/api/copy", {"source": "tale", "destination": "tale2"})[0], 200)
        self.assertIn("tale2", self.listed(server))
        self.assertEqual(server.ask("POST", "/api/generate", {"model": "tale2", "prompt": "One", "stream": False, "options": {"num_predict": 2}})[0], 200)
        self.assertEqual(server.ask("DELETE", "/api/delete", {"model": "tale"})[0], 200)
        self.assertEqual(server.ask("DELETE", "/api/delete", {"model": "tale2"})[0], 200)  # it is loaded
        self.assertNotIn("tale2", self.listed(server))
        self.assertEqual(server.ask("POST", "/api/generate", {"model": "tale2", "prompt": "One"})[0], 404)
        self.assertEqual(server.ask("DELETE", "/api/delete", {"model": "tale2"})[0], 404)
        self.assertEqual(server.ask("POST", "/api/copy", {"source": "nobody", "destination": "x"})[0], 404)
        for body in ({"model": "x", "from": "nobody"}, {"model": "../x", "from": "stories"}, {"model": "x"}, {"model": "x", "from": LLAMA},
                     {"model": "x", "from": "stories", "parameters": {"temperature": "hot"}}, {"model": "x", "files": {"m.gguf": "sha256:" + "0" * 64}}):
            status, text = server.ask("POST", "/api/create", body)
            self.assertEqual(status, 400, text)
        self.assertEqual(server.ask("POST", "/api/push", {"model": "x"})[0], 501)

    def test_uploads(self):
        with open(LLAMA, "rb") as file:
            data = file.read()
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        server = self.server("--max-body-bytes", str(64 << 20))
        self.assertEqual(self.raw(server, "HEAD", f"/api/blobs/{digest}")[0], 404)
        self.assertEqual(self.raw(server, "POST", f"/api/blobs/{digest}", b"other")[0], 400)
        self.assertEqual(self.raw(server, "POST", "/api/blobs/..%2Fx", b"other")[0], 400)
        self.assertEqual(self.raw(server, "POST", f"/api/blobs/{digest}", data)[0], 201)
        self.assertEqual(self.raw(server, "HEAD", f"/api/blobs/{digest}")[0], 200)
        self.assertEqual(server.ask("POST", "/api/create", {"model": "up", "files": {"../m.gguf": digest}})[0], 400)
        self.lines(server, "/api/create", {"model": "up", "files": {"m.gguf": digest}})
        self.assertIn("up", self.listed(server))
        self.assertEqual(self.json_of("show", "up", "--json")["architecture"], "llama")
        self.lines(server, "/api/create", {"model": "quick", "files": {"m.gguf": digest}, "draft": {"d.gguf": digest}})
        self.assertIn("/quick/", self.run_it("show", "quick", "--modelfile").split("\nDRAFT ")[1].splitlines()[0])
        self.lines(server, "/api/create", {"model": "quicker", "from": "quick", "draft": "up"})
        self.assertIn("\nDRAFT ", self.run_it("show", "quicker", "--modelfile"))
        for draft in ("nobody", LLAMA, "../up", {"d.gguf": "sha256:" + "0" * 64}, {"../d.gguf": digest}):
            status, text = server.ask("POST", "/api/create", {"model": "x", "from": "up", "draft": draft})
            self.assertEqual(status, 400, text)
        self.lines(server, "/api/create", {"model": "tale", "from": "stories", "draft": "stories-draft"})
        self.assertIn("\nDRAFT stories-draft\n", self.run_it("show", "tale", "--modelfile") + "\n")

    def test_pull_with_progress(self):
        with open(LLAMA, "rb") as file:
            data = file.read()
        with Hub(data) as hub:
            os.environ["HF_ENDPOINT"] = hub.url
            server = self.server()
            lines = self.lines(server, "/api/pull", {"model": "hf.co/owner/name:Q4_K_M"})
            self.assertEqual(lines[0], {"status": "pulling manifest"})
            self.assertEqual(lines[-1], {"status": "success"})
            moved = [line for line in lines if "completed" in line]
            self.assertEqual(moved[-1]["completed"], len(data))
            self.assertEqual(moved[-1]["total"], len(data))
            self.assertIn("owner/name:Q4_K_M", self.listed(server))
            for name in ("owner/name:Q4_K_M", "hf.co/owner/name:Q4_K_M", "owner/name"):
                self.assertEqual(server.ask("POST", "/api/generate", {"model": name, "prompt": "a", "stream": False, "options": {"num_predict": 1}})[0], 200)
            self.assertIn("error", self.lines(server, "/api/pull", {"model": "owner/nothing"})[-1])
            self.assertEqual(server.ask("POST", "/api/pull", {"model": "owner/nothing", "stream": False})[0], 400)
            self.assertEqual(server.ask("POST", "/api/pull", {"model": "llama3"})[0], 400)

    def test_without_a_store_or_a_right(self):
        with server_process.Server(BINARY, "-m", "stories") as server:
            status, text = server.ask("POST", "/api/copy", {"source": "a", "destination": "b"})
            self.assertEqual(status, 501)
            self.assertIn("--store", text)
        keys = write(self.folder, "keys.json", json.dumps({"keys": [{"name": "user", "key": "u" * 20}, {"name": "admin", "key": "a" * 20, "role": "admin"}]}))
        os.chmod(keys, 0o600)
        server = self.server("--api-keys", keys)
        copy = {"source": "stories", "destination": "b"}
        self.assertEqual(server.ask("POST", "/api/copy", copy)[0], 401)
        self.assertEqual(server.ask("POST", "/api/copy", copy, {"Authorization": "Bearer " + "u" * 20})[0], 403)
        made = server.ask("POST", "/api/create", {"model": "b", "from": "stories"}, {"Authorization": "Bearer " + "a" * 20})
        self.assertEqual(made[0], 200, made[1])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
