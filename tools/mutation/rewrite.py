"""Finds the mutants of a C++ file and rewrites the file to contain all of them (mutant.h selects the active one).

Only code that runs is mutated: bodies of functions and lambdas, except constant expressions (constexpr and static const
variables, static_assert, case labels, template arguments). Each edit inserts or replaces text within a line, so that line
numbers stay the same.
"""

import re

from . import tokens as lexer

_COMPARISONS = {"<": ("lt", "<="), "<=": ("le", "<"), ">": ("gt", ">="), ">=": ("ge", ">"), "==": ("eq", "!="), "!=": ("ne", "==")}
_ASSIGNMENTS = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
_STOP_WORDS = {"return", "co_return", "co_yield", "throw", "case", "else", "do", "delete", "goto"}
_JUMPS = {"return", "break", "continue", "throw"}
_SCALARS = {"bool", "int", "unsigned", "char", "float", "double", "size_t", "ptrdiff_t"} | {
    f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_DECLARERS = {"using", "typedef", "friend", "extern", "template", "static_assert", "constexpr", "constinit", "goto", "asm"}
_QUALIFIERS = {"const", "static", "auto", "mutable", "volatile", "thread_local", "inline", "unsigned", "signed", "long", "short",
               "bool", "int", "char", "float", "double", "void", "struct", "enum", "class", "union", "typename"}


class Mutant:
    """One change. edits: (offset, end, text, rank, size); rank and size order edits at the same offset."""

    def __init__(self, line, column, change, edits):
        self.line, self.column, self.change, self.edits = line, column, change, edits
        self.id = 0
        self.file = ""
        self.source = ""  # the line's text
        self.nth = 1      # index among equal changes of that line

    def key(self):
        return self.file, self.source, self.change, self.nth

    def __str__(self):
        return f"{self.file}:{self.line}: {self.change}"


class Finder:
    def __init__(self, text):
        self.text = text
        self.tokens = lexer.tokenize(text)
        self.found = []
        self.scope(0, len(self.tokens), False)

    # ---- where code is --------------------------------------------------------------------------------------------

    def scope(self, i, end, in_class):
        """Namespaces and classes: looks for bodies of functions, and of lambdas in initializers."""
        head = i
        while i < end:
            token = self.tokens[i]
            mark = token.text
            if mark == ";" or (mark == ":" and self.tokens[i - 1].text in ("public", "private", "protected")):
                head = i + 1
            elif mark == "{":
                if self.member_brace(head, i):
                    i = token.mate
                else:
                    self.open_brace(head, i)
                    i = token.mate
                    head = i + 1
            elif token.mate is not None and token.mate > i:
                self.lambdas(i, token.mate)
                i = token.mate
            i += 1

    def words(self, first, last):
        """Texts at the top level of a span, brackets' contents left out."""
        i, found = first, []
        while i < last:
            token = self.tokens[i]
            found.append(token.text)
            if token.mate is not None and token.mate > i and token.mate < last:
                i = token.mate
                found.append(self.tokens[i].text)
            i += 1
        return found

    def member_brace(self, head, brace):
        """`b_{y}` in a constructor's list of initializers."""
        words = self.words(head, brace)
        after = self.tokens[self.tokens[brace].mate + 1].text if self.tokens[brace].mate + 1 < len(self.tokens) else ""
        return ")" in words and ":" in words and self.tokens[brace - 1].kind == "name" and after in (",", "{")

    def open_brace(self, head, brace):
        words = self.words(head, brace)
        close = self.tokens[brace].mate
        if "enum" in words:
            return
        if "=" in words and "operator" not in words:
            self.lambdas(brace, close)  # an initializer
        elif "(" in words and not ({"namespace", "struct", "class", "union"} & set(words[:words.index("(")])):
            self.block(brace, self.returned(head, brace), False)
        elif {"namespace", "struct", "class", "union"} & set(words) or words[:1] == ["extern"]:
            self.scope(brace + 1, close, "namespace" not in words)
        else:
            self.lambdas(brace, close)

    def returned(self, head, brace):
        """'void', 'scalar' or 'other': the return type of a function with this head."""
        words = self.words(head, brace)
        before = [word for word in words[:words.index("(")] if word not in ("static", "inline", "constexpr", "virtual", "explicit", "std", "::", "const", "override")]
        if "->" in words:
            before = words[len(words) - words[::-1].index("->"):] + ["name"]
        if len(before) < 2 or before[0] == "void":
            return "void"
        return "scalar" if before[0] in _SCALARS and not {"*", "&", "<"} & set(before) else "other"

    def lambdas(self, first, last):
        """Bodies of the lambdas in a span of an expression."""
        i = first
        while i < last:
            body = self.lambda_body(i)
            if body:
                self.block(body, "lambda", False)
                i = self.tokens[body].mate
            i += 1

    def lambda_body(self, i):
        """The index of the brace that opens the body of the lambda that begins at i, or None."""
        token = self.tokens[i]
        if token.text != "[" or token.mate is None:
            return None
        before = self.tokens[i - 1]
        if before.kind in ("name", "number", "string") and before.text not in _STOP_WORDS or before.text in (")", "]"):
            return None
        j = token.mate + 1
        if j < len(self.tokens) and self.tokens[j].text == "<" and self.tokens[j].mate:
            j = self.tokens[j].mate + 1
        if j < len(self.tokens) and self.tokens[j].text == "(":
            j = self.tokens[j].mate + 1
        while j < len(self.tokens) and (self.tokens[j].kind == "name" or self.tokens[j].text in ("->", "::", "*", "&", "<")):
            j = self.tokens[j].mate + 1 if self.tokens[j].template else j + 1
        return j if j < len(self.tokens) and self.tokens[j].text == "{" else None

    # ---- statements -----------------------------------------------------------------------------------------------

    def block(self, brace, returns, more):
        """A block of statements. more: the function continues after it."""
        close = self.tokens[brace].mate
        i = brace + 1
        while i < close:
            i = self.statement(i, close, returns, more, False)

    def statement(self, i, close, returns, more, governed):
        """Handles one statement and returns the index after it. governed: it is the branch of an if."""
        token = self.tokens[i]
        word = token.text
        if word == ";":
            return i + 1
        if word == "{":
            end = token.mate + 1
            inner_more = more or end < close
            j = i + 1
            while j < token.mate:
                last = self.end_of(j, token.mate) >= token.mate
                j = self.statement(j, token.mate, returns, inner_more if last else True, governed)
            return end
        if word in ("if", "while", "for", "switch"):
            return self.controlled(i, close, returns, more)
        if word == "else":
            return self.statement(i + 1, close, returns, more, True)
        if word == "do":
            end = self.statement(i + 1, close, returns, True, False)
            return self.simple_end(end, close)
        if word == "try":
            return self.statement(i + 1, close, returns, more, False)
        if word == "catch":
            return self.statement(self.tokens[i + 1].mate + 1, close, returns, more, False)
        if word in ("case", "default"):
            while self.tokens[i].text != ":":
                i = self.tokens[i].mate if self.tokens[i].mate is not None and self.tokens[i].mate > i else i
                i += 1
            return i + 1
        if word in ("struct", "class", "union", "enum"):
            end = self.simple_end(i, close)
            return end
        end = self.simple_end(i, close)
        self.simple(i, end - 1, returns, more or end < close, governed)
        return end

    def controlled(self, i, close, returns, more):
        word = self.tokens[i].text
        is_if = word == "if"
        constant = self.tokens[i + 1].text == "constexpr"
        paren = i + 2 if constant else i + 1
        end_paren = self.tokens[paren].mate
        if not constant:
            self.condition(word, paren, end_paren)
        after = end_paren + 1
        end = self.end_of(after, close)
        inner = more or self.past_else(end, close) < close if is_if else (more or end < close) if word == "switch" else True
        self.statement(after, close, returns, inner, is_if)
        while is_if and end < close and self.tokens[end].text == "else":
            begin, end = end + 1, self.end_of(end + 1, close)
            self.statement(begin, close, returns, more or end < close, True)
            if self.tokens[begin].text == "if":
                break
        return end

    def past_else(self, end, close):
        while end < close and self.tokens[end].text == "else":
            end = self.end_of(end + 1, close)
        return end

    def end_of(self, i, close):
        """The index after the statement at i, including an if's else; does not look for mutants."""
        word = self.tokens[i].text
        if i >= close:
            return close
        if word == "{":
            return self.tokens[i].mate + 1
        if word in ("if", "while", "for", "switch"):
            paren = i + 2 if self.tokens[i + 1].text == "constexpr" else i + 1
            end = self.end_of(self.tokens[paren].mate + 1, close)
            return self.past_else(end, close) if word == "if" else end
        if word in ("else", "try"):
            return self.end_of(i + 1, close)
        if word == "do":
            return self.simple_end(self.end_of(i + 1, close), close)
        if word == "catch":
            return self.end_of(self.tokens[i + 1].mate + 1, close)
        if word in ("case", "default"):
            while self.tokens[i].text != ":":
                i += 1
            return i + 1
        return self.simple_end(i, close)

    def simple_end(self, i, close):
        while i < close and self.tokens[i].text != ";":
            mate = self.tokens[i].mate
            i = mate + 1 if mate is not None and mate > i else i + 1
        return min(i + 1, close)

    def simple(self, first, last, returns, more, governed):
        """A statement that ends with a semicolon: tokens [first, last)."""
        words = self.words(first, last)
        if not words or words[0] in _DECLARERS or "constexpr" in words[:3] or (words[0] == "static" and "const" in words[:2]):
            return
        if words[0] in _JUMPS:
            if governed and more:
                self.drop(first, last)
            if words[0] == "return":
                self.replace_return(first + 1, last, returns)
        elif self.is_expression(first, last, words):
            self.drop(first, last)
        self.expressions(first, last)

    def is_expression(self, first, last, words):
        """An expression statement, not a declaration: no two adjacent names, and only ::, ., -> and brackets before the
        operator or the call."""
        if words[0] in ("++", "--", "*", "("):
            return True
        if self.tokens[first].kind != "name" or words[0] in _QUALIFIERS or words[0] in ("co_return", "delete"):
            return words[0] == "delete"
        if words[0].isupper() and not words[0].endswith("_VOID"):
            return False  # a macro that may declare
        i, calls = first, False
        while i < last:
            token = self.tokens[i]
            if token.text in _ASSIGNMENTS or token.text in ("++", "--", "<<"):
                return True
            if token.text in ("(", "["):
                calls = token.text == "("
                i = token.mate
            elif token.text == "<" and token.template:
                i = token.mate
            elif token.text not in ("::", ".", "->"):
                if token.kind != "name" or (i > first and self.tokens[i - 1].text not in ("::", ".", "->")):
                    return False
            i += 1
        return calls

    # ---- mutants --------------------------------------------------------------------------------------------------

    def add(self, at, change, edits):
        start = self.tokens[at].start
        line = self.text.count("\n", 0, start) + 1
        self.found.append(Mutant(line, start - self.text.rfind("\n", 0, start), change, edits))

    def shown(self, first, last):
        text = re.sub(r"\s+", " ", self.text[self.tokens[first].start:self.tokens[last - 1].end])
        return text if len(text) <= 60 else text[:57] + "..."

    def wrap(self, first, last, before, after):
        """Edits that put text around tokens [first, last)."""
        start, end = self.tokens[first].start, self.tokens[last - 1].end
        return [(start, start, before, 1, -(end - start)), (end, end, after, 0, end - start)]

    def drop(self, first, last):
        start = self.tokens[first].start
        self.add(first, f"drop: {self.shown(first, last)}", [(start, start, "if (::mutant::on(@)) {} else ", 1, -10**9)])

    def condition(self, word, paren, close):
        first, i = paren + 1, paren + 1
        semicolons = 0
        while i < close:
            if self.tokens[i].text == ";":
                first, semicolons = i + 1, semicolons + 1
            i = self.tokens[i].mate if self.tokens[i].mate is not None and self.tokens[i].mate > i else i
            i += 1
        words = self.words(first, close)
        if word in ("if", "while") and words and "=" not in words and sum(one in ("==", "!=") for one in words) != 1:
            self.add(first, f"negate: {self.shown(first, close)}", self.wrap(first, close, "(bool(", ") != ::mutant::on(@))"))
        self.expressions(paren + 1, close)

    def replace_return(self, first, last, returns):
        if returns != "scalar" or first >= last or self.tokens[first].text == "{":
            return
        words = self.words(first, last)
        if sum(one in ("==", "!=") for one in words) == 1 or "?" in words or (len(words) == 1 and self.tokens[first].kind == "number"):
            return  # another mutant is equivalent
        change = {"true": "return false", "false": "return true"}.get(" ".join(words), f"return another: {self.shown(first, last)}")
        self.add(first, change, self.wrap(first, last, "::mutant::answer(@, ", ")"))

    def expressions(self, first, last):
        """Mutants of operators and literals in [first, last); bodies of lambdas are statements."""
        i = first
        while i < last:
            token = self.tokens[i]
            body = self.lambda_body(i)
            if body and body < last:
                self.block(body, "lambda", False)
                i = self.tokens[body].mate
            elif token.template and token.text == "<":
                i = token.mate
            elif token.kind == "number":
                self.literal(i)
            elif token.text in _COMPARISONS and token.spaced:
                self.operator(i, first, last, *self.comparison_edits(token.text))
            elif token.text in ("&&", "||") and token.spaced:
                self.logical(i, first, last)
            elif token.text == "?":
                self.choice(i, first)
            elif token.text in ("min", "max") and i >= 2 and self.tokens[i - 1].text == "::" and self.tokens[i - 2].text == "std":
                self.swap(i)
            i += 1

    @staticmethod
    def comparison_edits(mark):
        name, becomes = _COMPARISONS[mark]
        return mark, becomes, f"::mutant::{name}(@, "

    def literal(self, i):
        text = self.tokens[i].text
        match = re.fullmatch(r"(0[xX][0-9a-fA-F']+|0[bB][01']+|[0-9][0-9']*)([uUlLzZ]*)", text)
        if not match:
            return
        value = int(match.group(1).replace("'", ""), 8 if re.fullmatch(r"0[0-7]+", match.group(1)) else 0)
        changed = 0 if value == 1 and self.tokens[i - 1].text in ("+", "-") else value + 1
        token = self.tokens[i]
        other = f"{changed}{match.group(2)}"
        self.add(i, f"{text} -> {changed}", [(token.start, token.end, f"::mutant::step(@, {text}, {other})", 2, 0)])

    def extent(self, i, first, last, weaker):
        """[left, right) of the operands of the operator at i; None if they contain an operator of the same precedence."""
        mark = self.tokens[i].text
        peers = {"<", "<=", ">", ">="} if mark in ("<", "<=", ">", ">=") else {"==", "!="} if mark in ("==", "!=") else set()

        def stops(j):
            token = self.tokens[j]
            if token.kind == "name":
                return token.text in _STOP_WORDS
            if token.text in weaker:
                if token.text in ("&", "*", "&&"):  # without spaces: address-of, dereference or reference
                    return token.spaced
                return not token.template
            return False

        left = i
        while left > first:
            j = left - 1
            token = self.tokens[j]
            if token.mate is not None:
                if token.mate > j:
                    break
                j = token.mate
                if j < first:
                    break
            elif stops(j):
                break
            elif token.text in peers and token.spaced:
                return None
            left = j
        right = i + 1
        while right < last:
            token = self.tokens[right]
            if token.mate is not None:
                if token.mate < right or (token.text == "{" and right > i + 1 and self.tokens[right - 1].text == ")"):
                    break
                right = token.mate + 1
                continue
            if stops(right) or token.spaced and (token.text in peers or token.text == mark):  # a && b && c: (a && b) && c
                break
            right += 1
        return (left, right) if left < i and right > i + 1 else None

    _LOWEST = _ASSIGNMENTS | {",", ";", "?", ":"}

    def operator(self, i, first, last, mark, becomes, call):
        weaker = self._LOWEST | {"&&", "||", "|", "^", "&"} | ({"==", "!="} if mark not in ("==", "!=") else set())
        span = self.extent(i, first, last, weaker)
        if not span:
            return
        token = self.tokens[i]
        edits = self.wrap(*span, call, ")") + [(token.start, token.end, ",", 2, 0)]
        self.add(i, f"{mark} -> {becomes}", edits)

    def logical(self, i, first, last):
        mark = self.tokens[i].text
        span = self.extent(i, first, last, self._LOWEST | ({"||"} if mark == "&&" else set()))
        if not span:
            return
        left = self.wrap(span[0], span[1], "((bool(", ") : " + ("::mutant::on(@))" if mark == "&&" else "!::mutant::on(@))"))
        token = self.tokens[i]
        middle = f") {'!=' if mark == '&&' else '=='} ::mutant::on(@)) ? bool("
        self.add(i, f"{mark} -> {'||' if mark == '&&' else '&&'}", left + [(token.start, token.end, middle, 2, 0)])

    def choice(self, i, first):
        left = i
        while left > first:
            j = left - 1
            token = self.tokens[j]
            if token.mate is not None:
                if token.mate > j or token.mate < first:
                    break
                j = token.mate
            elif token.text in self._LOWEST or token.text in _STOP_WORDS:
                break
            left = j
        words = self.words(left, i)
        if left < i and sum(one in ("==", "!=") for one in words) != 1:
            self.add(left, f"negate: {self.shown(left, i)}", self.wrap(left, i, "(bool(", ") != ::mutant::on(@))"))

    def swap(self, i):
        j = i + 1
        if self.tokens[j].template:
            j = self.tokens[j].mate + 1
        if self.tokens[j].text != "(":
            return
        name = self.tokens[i].text
        edits = [(self.tokens[i - 2].start, self.tokens[i].end, f"::mutant::{'lesser' if name == 'min' else 'greater'}", 2, 0),
                 (self.tokens[j].end, self.tokens[j].end, "@, ", 1, -10**9)]
        self.add(i, f"{name} -> {'max' if name == 'min' else 'min'}", edits)


def find(text, path):
    """The mutants of a file, in source order."""
    found = sorted(Finder(text).found, key=lambda one: (one.line, one.column))
    lines, seen, unique = text.split("\n"), {}, []
    places = set()
    for one in found:
        place = (one.line, one.column, one.change)
        if place in places:
            continue
        places.add(place)
        one.file, one.source = path, lines[one.line - 1].strip()
        key = (one.source, one.change)
        seen[key] = one.nth = seen.get(key, 0) + 1
        unique.append(one)
    return unique


def rewrite(text, mutants):
    """The text with these mutants inserted, by their ids."""
    edits = []
    for mutant in mutants:
        for seq, (start, end, new, rank, size) in enumerate(mutant.edits):
            order = mutant.id if rank else -mutant.id
            edits.append((start, rank, size, order, seq, end, new.replace("@", str(mutant.id))))
    # At one offset, closing text precedes opening text; wider spans open first and close last.
    edits.sort()
    out, at = [], 0
    for start, _, _, _, _, end, new in edits:
        out.append(text[at:start])
        out.append(new)
        at = max(at, end)
    out.append(text[at:])
    return f'#include "mutant.h"\n#line 1\n{"".join(out)}'
