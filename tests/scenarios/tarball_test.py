#!/usr/bin/env python3
"""tools/package_tarball: the program and the library with everything static but libc run in a root that has libc alone.

With MILLRACE_GLIBC=FOLDER, such as ROOT/lib/x86_64-linux-gnu of Debian 11's libc6, they also run with that glibc.

Usage: tarball_test.py MILLRACE SOURCE_FOLDER BUILD_FOLDER CC [CLASS]
"""

import contextlib
import glob
import hashlib
import http.client
import importlib.machinery
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

MILLRACE, SOURCE, BUILD, CC = sys.argv[1:5]
TOOL = os.path.join(SOURCE, "tools/package_tarball")
STORY = ["run", "-m", "stories", "-p", "One day", "-s", "7", "-n", "24"]


def run(*words, **more):
    return subprocess.run(words, capture_output=True, text=True, timeout=600, **more)


def system_libraries():
    """The loader and the libraries of glibc on this machine."""
    named = ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1")
    return ["/lib64/ld-linux-x86-64.so.2", *(f"/lib/x86_64-linux-gnu/{name}" for name in named)]


class Tarball(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        done = run(TOOL, BUILD, cls.folder, umask=0o077)
        assert done.returncode == 0, done.stderr
        [cls.tarball] = glob.glob(os.path.join(cls.folder, "*.tar.gz"))
        assert run("tar", "-xf", cls.tarball, "-C", cls.folder).returncode == 0
        cls.root = cls.tarball.removesuffix(".tar.gz")
        cls.story = run(MILLRACE, *STORY).stdout

    def path(self, name):
        return os.path.join(self.root, name)

    def test_contents(self):
        self.assertEqual(os.path.basename(self.root), f"millrace-{run(MILLRACE, '--version').stdout.split()[1]}-linux-x86_64")
        for name in ("bin/millrace", "lib/libmillrace.so.0", "lib/libmillrace.so", "include/millrace.h", "lib/pkgconfig/millrace.pc",
                     "share/man/man1/millrace-run.1", "share/bash-completion/completions/millrace", "share/zsh/site-functions/_millrace",
                     "share/fish/vendor_completions.d/millrace.fish", "LICENSE", "share/doc/millrace/licences/libssl",
                     "share/doc/millrace/licences/libfmt"):
            self.assertGreater(os.path.getsize(self.path(name)), 0, name)
        self.assertEqual(sorted(os.listdir(self.path("share/man/man1"))), sorted(os.listdir(os.path.join(BUILD, "printed/man1"))))
        with open(os.path.join(self.folder, "SHA256SUMS")) as sums, open(self.tarball, "rb") as file:
            self.assertEqual(sums.read(), f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {os.path.basename(self.tarball)}\n")
        self.assertEqual(run("sha256sum", "-c", "SHA256SUMS", cwd=self.folder).returncode, 0)

    def test_modes_do_not_depend_on_the_umask(self):
        with tarfile.open(self.tarball) as tar:
            modes = {os.path.relpath(entry.name, os.path.basename(self.root)): entry.mode for entry in tar}
        self.assertEqual({name: mode for name, mode in modes.items() if mode != 0o644},
                         {"bin/millrace": 0o755, "lib/libmillrace.so.0": 0o755, "lib/libmillrace.so": 0o777})

    def test_answers_as_the_program_it_was_linked_from(self):
        self.assertEqual(run(self.path("bin/millrace"), *STORY).stdout, self.story)
        self.assertEqual(run(self.path("bin/millrace"), "--version").stdout, run(MILLRACE, "--version").stdout)
        damaged = os.path.join(self.folder, "damaged.gguf")
        with open(damaged, "wb") as file:
            file.write(b"GGUF\3\0\0\0" + b"\xff" * 64)
        done = run(self.path("bin/millrace"), "inspect", damaged)
        self.assertEqual((done.returncode, done.stderr), (3, run(MILLRACE, "inspect", damaged).stderr))

    def c_example(self):
        """Compiled with the tarball's header and library, found by its pkg-config file."""
        program = os.path.join(self.root, "bin/generate")
        flags = run("pkg-config", "--cflags", "--libs", "millrace", env={**os.environ, "PKG_CONFIG_PATH": self.path("lib/pkgconfig")})
        done = run(CC, "-std=c11", "-Wall", "-Wextra", "-Werror", os.path.join(SOURCE, "examples/c/generate.c"), "-o", program,
                   *flags.stdout.split(), "-Wl,-rpath,$ORIGIN/../lib")
        self.assertEqual(done.returncode, 0, done.stderr)
        return program

    def test_library(self):
        done = run(self.c_example(), "stories", "One day", "seed=7", "max_tokens=24")
        self.assertEqual(done.stdout.split("\n[")[0], self.story.removeprefix("One day").rstrip("\n"), done.stderr)
        listed = run("nm", "-D", "--defined-only", "--with-symbol-versions", self.path("lib/libmillrace.so.0")).stdout
        with open(os.path.join(SOURCE, "tests/capi/symbols.txt")) as stored:
            self.assertEqual(sorted(" ".join(line.split()[1:]) for line in listed.splitlines()), sorted(stored.read().splitlines()))

    def test_runs_in_a_root_with_libc_alone(self):
        enter = ["chroot"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "chroot"]
        if run(*enter, "/", "/bin/true").returncode != 0:
            self.skipTest("chroot is not permitted")
        with tempfile.TemporaryDirectory() as bare:
            for path in system_libraries():
                os.makedirs(bare + os.path.dirname(path), exist_ok=True)
                shutil.copy(os.path.realpath(path), bare + path)
            os.makedirs(os.path.join(bare, "tmp"))
            shutil.copytree(self.root, os.path.join(bare, "millrace"), symlinks=True)
            done = run(*enter, bare, "/millrace/bin/millrace", *STORY)
            self.assertEqual(done.stdout, self.story, done.stderr)

    def test_runs_with_an_older_glibc(self):
        folder = os.environ.get("MILLRACE_GLIBC")
        if not folder:
            self.skipTest("MILLRACE_GLIBC names no folder with another glibc")
        loader = [glob.glob(os.path.join(folder, "ld-*.so*"))[0], "--library-path", folder]
        done = run(*loader, self.path("bin/millrace"), *STORY)
        self.assertEqual(done.stdout, self.story, done.stderr)
        done = run(*loader, self.path("bin/millrace"), "bench", "-m", "stories", "-p", "16", "-n", "8", "-r", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with subprocess.Popen([*loader, self.path("bin/millrace"), "serve", "-m", "stories", "--port", str(port)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as server:
            try:
                self.assertEqual(self.ask(port, "GET", "/health/ready")[0], 200)
                body = {"prompt": "One day", "seed": 7, "max_tokens": 24}
                status, answer = self.ask(port, "POST", "/v1/completions", body)
                self.assertEqual((status, "One day" + answer["choices"][0]["text"] + "\n"), (200, self.story))
            finally:
                server.terminate()
            server.communicate(timeout=60)
            self.assertEqual(server.returncode, 0)

    def ask(self, port, method, path, body=None):
        """Retries until the server listens. Returns the status and the JSON body."""
        for _ in range(100):
            try:
                with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
                    connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
                    reply = connection.getresponse()
                    text = reply.read()
                return reply.status, json.loads(text) if text.startswith(b"{") else {}
            except ConnectionRefusedError:
                time.sleep(0.1)
        raise AssertionError("the server does not listen")


class Check(unittest.TestCase):
    def test_a_build_for_one_processor_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "CMakeCache.txt"), "w") as file:
                file.write("CMAKE_BUILD_TYPE:STRING=Release\nMILLRACE_KERNELS:STRING=native\n")
            done = run(TOOL, folder, folder)
            self.assertEqual(done.returncode, 1)
            self.assertIn("MILLRACE_KERNELS is native", done.stderr)

    def test_the_check_fails_for_a_program_with_other_libraries(self):
        """The ordinary program needs newer symbols and other libraries, so the tool's own check must refuse it."""
        sys.dont_write_bytecode = True
        loader = importlib.machinery.SourceFileLoader("package_tarball", TOOL)
        tool = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
        loader.exec_module(tool)
        with self.assertRaises(tool.Failure) as refused:
            tool.check(MILLRACE)
        self.assertRegex(str(refused.exception), r"of glibc 2\.3[2-9]|needs lib")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]])
