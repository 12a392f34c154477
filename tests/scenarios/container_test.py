#!/usr/bin/env python3
"""The container files of docs/ops: checked for common mistakes, and built where podman, docker or buildah works.

With MILLRACE_BUILD_IMAGES=1 the image of Containerfile is built, too, which compiles everything.

Usage: container_test.py MILLRACE SOURCE_FOLDER BUILD_FOLDER [CLASS]
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

MILLRACE, SOURCE, BUILD = sys.argv[1:4]
OPS = os.path.join(SOURCE, "docs/ops")
INSTRUCTIONS = {"FROM", "RUN", "COPY", "WORKDIR", "USER", "EXPOSE", "STOPSIGNAL", "ENTRYPOINT", "CMD", "ENV", "ARG", "LABEL"}


def instructions(text):
    """The instructions and their arguments; continued lines are one."""
    joined = re.sub(r"\\\n", " ", re.sub(r"(?m)^#.*\n", "", text))
    return [tuple((line.split(None, 1) + [""])[:2]) for line in joined.splitlines() if line.strip()]


def shell_problem(command):
    done = subprocess.run(["sh", "-n", "-c", command], capture_output=True, text=True)
    return done.stderr.strip()


def problems(text, context=None):
    """What is wrong with a container file. `context`: the folder that COPY copies from; None: it is made later."""
    out, stages, images = [], [], 0
    user = None
    for name, argument in instructions(text):
        if name not in INSTRUCTIONS:
            out.append(f"{name}: no such instruction")
        elif name == "FROM":
            match = re.fullmatch(r"([\w./-]+)(?::([\w.-]+))?(?: AS (\w+))?", argument)
            if not match or (match[1] not in stages and match[1] != "scratch" and match[2] in (None, "latest")):
                out.append(f"FROM {argument}: needs a tag that is not latest")
            if match and match[3]:
                stages.append(match[3])
            images += 1
            user = None
        elif images == 0 and name != "ARG":
            out.append(f"{name}: before the first FROM")
        elif name == "COPY":
            *words, _ = argument.split()
            earlier = [word.removeprefix("--from=") for word in words if word.startswith("--from=")]
            out += [f"COPY {argument}: there is no stage {stage}" for stage in earlier if stage not in stages]
            for word in words:
                if not earlier and context and not os.path.exists(os.path.join(context, word)):
                    out.append(f"COPY {argument}: {word} does not exist")
        elif name == "RUN":
            if problem := shell_problem(argument):
                out.append(f"RUN: {problem}")
            if "apt-get install" in argument and "--no-install-recommends" not in argument:
                out.append("RUN apt-get install: needs --no-install-recommends")
            if "apt-get install" in argument and "apt-get update" not in argument:
                out.append("RUN apt-get install: needs apt-get update in the same layer")
        elif name in ("ENTRYPOINT", "CMD"):
            try:
                json.loads(argument)
            except ValueError:
                out.append(f"{name} {argument}: must be a JSON array, so that signals reach the program")
        elif name == "USER":
            user = argument
        elif name == "EXPOSE" and not argument.isdigit():
            out.append(f"EXPOSE {argument}: must be a number")
    if user in (None, "0", "root"):
        out.append("USER: the image runs as root")
    last = text[text.rindex("FROM "):]
    if "apt-get update" in last and "rm -rf /var/lib/apt/lists" not in last:
        out.append("RUN: the image keeps the lists of apt")
    return out


class Lint(unittest.TestCase):
    def test_container_files(self):
        for name, context in (("Containerfile", SOURCE), ("Containerfile.tarball", None)):
            with open(os.path.join(OPS, name)) as file:
                self.assertEqual(problems(file.read(), context), [], name)

    def test_mistakes_are_found(self):
        good = 'FROM a:1 AS b\nFROM a:1\nCOPY --from=b /x /x\nUSER 5\nCMD ["x"]\n'
        self.assertEqual(problems(good), [])
        for before, after, message in (("a:1\n", "a\n", "tag"), ("a:1\n", "a:latest\n", "tag"), ("USER 5", "USER root", "runs as root"),
                                       ("USER 5\n", "", "runs as root"), ("from=b", "from=c", "no stage c"), ('["x"]', "x", "JSON array"),
                                       ("USER 5", "USR 5", "no such instruction"), ("USER 5", "USER 5\nEXPOSE http", "number"),
                                       ("USER 5", "RUN if true\nUSER 5", "RUN:"),
                                       ("USER 5", "RUN apt-get update && apt-get install x\nUSER 5", "--no-install-recommends"),
                                       ("USER 5", "RUN apt-get update\nUSER 5", "lists of apt")):
            self.assertTrue(any(message in one for one in problems(good.replace(before, after))), (before, after))
        self.assertTrue(problems(good.replace("USER 5", "COPY no-such-file /\nUSER 5"), SOURCE))

    def test_names_of_the_package_are_those_of_cpack(self):
        with open(os.path.join(OPS, "Containerfile")) as file:
            text = file.read()
        targets = re.search(r"--target ([\w ]+)", text)[1].split()
        listed = subprocess.run(["ninja", "-C", BUILD, "-t", "targets", "all"], capture_output=True, text=True).stdout
        for target in targets:
            self.assertRegex(listed, rf"(?m)^{target}: phony")


class Build(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for name in ("podman", "docker", "buildah"):
            if shutil.which(name) and subprocess.run([name, "info"], capture_output=True).returncode == 0:
                cls.builder = [name, "build"]
                return
        raise unittest.SkipTest("no podman, docker or buildah works here")

    def build(self, name, context):
        done = subprocess.run([*self.builder, "-f", os.path.join(OPS, name), "-t", "millrace-test", context], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr[-4000:])
        if self.builder[0] != "buildah":
            shown = subprocess.run([self.builder[0], "run", "--rm", "millrace-test", "--version"], capture_output=True, text=True)
            self.assertRegex(shown.stdout, r"^millrace \d", shown.stderr)

    def test_image_of_the_tarball(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([os.path.join(SOURCE, "tools/package_tarball"), BUILD, folder], check=True)
            self.build("Containerfile.tarball", folder)

    def test_image_from_the_source(self):
        if not os.environ.get("MILLRACE_BUILD_IMAGES"):
            self.skipTest("MILLRACE_BUILD_IMAGES is not set")
        self.build("Containerfile", SOURCE)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
