"""A copy of the checkout with rewritten sources, and its build.

The copy, in build/mutate/tree, has symbolic links to every file except the rewritten ones. Its build folder has the same
relative depth as an ordinary one, so that a compiler cache serves everything that is not rewritten. If a file does not
compile, the mutants of the lines in the compiler's errors are removed.
"""

import json
import os
import re
import subprocess

from . import rewrite

MOST = 1 << 16  # as mutant.h
HERE = os.path.dirname(os.path.abspath(__file__))


def _git_files(root):
    out = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard", "-z"], capture_output=True, check=True).stdout
    return sorted({name for name in out.decode().split("\0") if name and os.path.exists(os.path.join(root, name))})


def is_source(path, headers):
    return path.endswith((".cc", ".h") if headers else ".cc") and not path.endswith(("_test.cc", "_test.h"))


def chosen_files(root, chosen, headers):
    """Sources that are chosen or are in the chosen folders."""
    chosen = [os.path.relpath(os.path.abspath(os.path.join(root, one)), root) for one in chosen]
    for one in chosen:
        if not os.path.exists(os.path.join(root, one)):
            raise SystemExit(f"mutate: {one}: no such file or folder in {root}")
    return [name for name in _git_files(root) if is_source(name, headers or name in chosen) and any(name == one or name.startswith(one + "/") for one in chosen)]


def read(root, name):
    with open(os.path.join(root, name), encoding="utf-8") as file:
        return file.read()


def find_mutants(root, files):
    """All mutants of the files. Each file's ids start at the next multiple of 256, so that a change in one file rarely changes
    the ids of others, which would rebuild them."""
    found, free = [], 1
    for name in files:
        try:
            own = rewrite.find(read(root, name), name)
        except ValueError as error:
            raise SystemExit(f"mutate: {name}: {error}") from error
        for number, one in enumerate(own, free):
            one.id = number
        found += own
        free = (free + len(own) + 255) // 256 * 256
    if free > MOST:
        raise SystemExit(f"mutate: {len(found)} mutants are too many for one build; choose fewer folders")
    return found


def _write(path, text):
    """Writes only if the text differs, to avoid rebuilds."""
    if os.path.islink(path):
        os.unlink(path)
    elif os.path.exists(path) and open(path, encoding="utf-8").read() == text:
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def _link(path, target):
    if os.path.islink(path) and os.readlink(path) == target:
        return
    if os.path.lexists(path):
        os.unlink(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.symlink(target, path)


class Tree:
    def __init__(self, root, say):
        self.root, self.say = root, say
        self.path = os.path.join(root, "build", "mutate", "tree")
        self.uncompiled = os.path.join(root, "build", "mutate", "uncompiled.json")
        self.build = os.path.join(self.path, "build", "release")
        self.environment = dict(os.environ, CCACHE_BASEDIR=self.path, CCACHE_NOHASHDIR="1")

    def lay_out(self, mutants):
        """Writes links and rewritten files; removes files that the checkout no longer has."""
        by_file = {}
        for one in mutants:
            by_file.setdefault(one.file, []).append(one)
        wanted = set()
        for name in _git_files(self.root):
            wanted.add(name)
            if name in by_file:
                _write(os.path.join(self.path, name), rewrite.rewrite(read(self.root, name), by_file[name]))
            else:
                _link(os.path.join(self.path, name), os.path.join(self.root, name))
        for name in os.listdir(self.root):  # ignored by git, but tests may read them
            if name not in ("build", ".git") and name not in {one.split("/")[0] for one in wanted}:
                _link(os.path.join(self.path, name), os.path.join(self.root, name))
                wanted.add(name)
        recorder = read(HERE, "recorder.cc")
        _write(os.path.join(self.path, "src/mutant.h"), read(HERE, "mutant.h"))
        for folder in sorted({os.path.dirname(name) for name in wanted if name.endswith("_test.cc")}):
            parts = folder.split("/")  # one per program: src/MODULE, tests/GROUP
            if len(parts) >= 2:
                _write(os.path.join(self.path, *parts[:2], "mutation_recorder_test.cc"), recorder)
        for where, _, names in os.walk(self.path):
            if os.path.relpath(where, self.path).split("/")[0] == "build":
                continue
            for name in names:
                path = os.path.relpath(os.path.join(where, name), self.path)
                if path not in wanted and name not in ("mutant.h", "mutation_recorder_test.cc"):
                    os.unlink(os.path.join(where, name))

    def run(self, command, **more):
        return subprocess.run(command, env=self.environment, cwd=self.path, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, errors="replace", check=False, **more)

    def known(self, mutants):
        """(mutants that compiled last time or are new, mutants that did not compile)."""
        keys = set()
        if os.path.exists(self.uncompiled):
            with open(self.uncompiled, encoding="utf-8") as file:
                keys = {tuple(key) for key in json.load(file)}
        return [one for one in mutants if one.key() not in keys], [one for one in mutants if one.key() in keys]

    def make(self, mutants, programs, jobs, rounds=8):
        """Builds the programs. Returns the mutants that compiled, and those that did not, now or last time."""
        mutants, lost = self.known(mutants)
        keys = {one.key() for one in lost}
        for turn in range(rounds):
            self.lay_out(mutants)
            if turn == 0:
                result = self.run(["cmake", "--preset", "release", "-DMILLRACE_TESTS=ON"])
                if result.returncode != 0:
                    raise SystemExit(f"mutate: cmake:\n{result.stdout[-3000:]}")
            self.say(f"building {', '.join(programs)} with {len(mutants)} mutants" + (f", without {len(lost)} that do not compile" if lost else ""))
            result = self.run(["ninja", "-C", self.build, f"-j{jobs}", "-k", "0", *programs])
            if result.returncode == 0:
                return mutants, lost
            bad = self.blamed(result.stdout, mutants)
            if not bad:
                raise SystemExit(f"mutate: the build fails, but not because of a mutant:\n{result.stdout[-4000:]}")
            lost += bad
            keys.update(one.key() for one in bad)
            with open(self.uncompiled, "w", encoding="utf-8") as file:
                json.dump(sorted(keys), file, indent=1)
            out = {one.id for one in bad}
            mutants = [one for one in mutants if one.id not in out]
        raise SystemExit(f"mutate: the build still fails after {rounds} rounds")

    def blamed(self, output, mutants):
        """Mutants of the lines in error messages: where the error is, and where its template was instantiated."""
        places, trail = set(), []
        for line in output.splitlines():
            match = re.match(r"(\S+?):(\d+)(?::\d+)?:\s+(.*)", line)
            if not match:
                continue
            name = os.path.relpath(os.path.normpath(os.path.join(self.build, match.group(1))), self.path)
            place = (name, int(match.group(2)))
            if "required from" in match.group(3) or match.group(3).startswith("in "):
                trail.append(place)
            elif match.group(3).startswith(("error:", "fatal error:")):
                places.add(place)
                places.update(trail)
                trail = []
            elif match.group(3).startswith("warning:"):
                trail = []
        return [one for one in mutants if (one.file, one.line) in places]
