"""Ledger: a tree's techniques, entries and results together, as tools/prove and tools/check_proofs use them."""

import os

from ledger import pages, runner
from ledger.entries import PROOFS, LedgerError, entry_of, read_families, read_techniques, run_hash, stem


def find_binary(root, given=None):
    """The binary given, or the one built in the tree, or None where none is built. Errors: LedgerError."""
    built = [os.path.join(root, "build", preset, "bin", "millrace") for preset in ("release", "dev")]
    for path in [given] if given else built:
        if os.path.exists(path):
            return os.path.abspath(path)
    if given:
        raise LedgerError(f"no binary {given}")
    return None


class Ledger:
    def __init__(self, root, binary):
        self.root, self.binary = root, binary
        self.techniques = read_techniques(binary)
        self.families = read_families(root)

    def stem(self, technique):
        return stem(technique, self.techniques)

    def entry(self, technique):
        return entry_of(self.families, technique)

    def result_path(self, technique):
        return os.path.join(self.root, PROOFS, "results", self.stem(technique) + ".json")

    def result(self, technique):
        return runner.read_result(self.result_path(technique))

    def rename_results(self):
        """Results keep their member when its file's name changes, since another family got a member of that name."""
        folder = os.path.join(self.root, PROOFS, "results")
        stems = {self.stem(technique) + ".json" for technique in self.techniques}
        paths = {(one["family"], one["name"]): self.result_path(one) for one in self.techniques}
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            result = {} if name in stems else runner.read_result(os.path.join(folder, name))
            path = paths.get((result.get("family"), result.get("name")))
            if path and not os.path.exists(path):
                os.rename(os.path.join(folder, name), path)

    def results(self):
        found = {(technique["family"], technique["name"]): self.result(technique) for technique in self.techniques}
        return {key: result for key, result in found.items() if result}

    def is_current(self, technique):
        entry, result = self.entry(technique), self.result(technique)
        return bool(entry and result and result.get("proof") == run_hash(entry, self.root))

    def named(self, names):
        """The members that people mean by NAME, FAMILY-NAME or FAMILY=NAME, or all of a FAMILY=. Errors: LedgerError."""
        found = []
        for name in names:
            members = [technique for technique in self.techniques if name in (
                technique["name"], self.stem(technique), f"{technique['family']}={technique['name']}",
                f"{technique['family']}-{technique['name']}", technique["family"] + "=")]
            if not members:
                raise LedgerError(f"no technique '{name}'; see `millrace techniques`")
            found += [member for member in members if member not in found]
        return found

    def prove(self, machine, technique, scratch, smoke=False):
        entry = self.entry(technique)
        if entry is None:
            raise LedgerError(f"no [member.{technique['name']}] in {PROOFS}/entries/{technique['family']}.toml")
        return runner.prove(machine, technique, self.techniques, entry, scratch, smoke)

    def pages(self):
        return pages.all_pages(self.techniques, self.families, self.results())

    def write_pages(self):
        written = self.pages()
        for path, text in written.items():
            runner.write_text(os.path.join(self.root, path), text)
        for path in pages.stray_pages(self.root, written):
            os.remove(os.path.join(self.root, path))
        return len(written)
