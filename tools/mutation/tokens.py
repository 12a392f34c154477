"""C++ tokens with their matching brackets. Relies on clang-format's spacing to tell template brackets from comparisons:
a comparison has a space on both sides, a template bracket does not."""

import re

_TOKEN = re.compile(
    r'(?P<skip>\s+|//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*)'
    r'|(?P<string>(?:u8|[uUL])?R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)"|(?:u8|[uUL])?"(?:\\.|[^"\\\n])*"\w*)'
    r"|(?P<char>(?:u8|[uUL])?'(?:\\.|[^'\\\n])+')"
    r"|(?P<number>\.?[0-9](?:'?[0-9A-Za-z_.]|(?<=[eEpP])[+-])*)"
    r'|(?P<name>[A-Za-z_]\w*)'
    r'|(?P<mark><=>|<<=|>>=|\.\.\.|->\*|::|->|\+\+|--|&&|\|\||[-+*/%&|^<>=!]=|<<|[-+*/%&|^~!=<>?:;,.(){}\[\]@#\\])',
    re.S | re.M)

_CLOSES = {")": "(", "]": "[", "}": "{"}


class Token:
    __slots__ = ("kind", "text", "start", "end", "mate", "template", "spaced")

    def __init__(self, kind, text, start, end, spaced):
        self.kind, self.text, self.start, self.end = kind, text, start, end
        self.mate = None        # index of the bracket's partner
        self.template = False   # < or > of a template
        self.spaced = spaced    # a space before and after


def tokenize(text):
    """The tokens of a file, brackets matched. ValueError where brackets do not match."""
    tokens, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if not match:
            raise ValueError(f"offset {at}: no token: {text[at:at + 20]!r}")
        kind, at = match.lastgroup, match.end()
        if kind == "tag":
            kind = "string"
        if kind != "skip":
            start, end = match.start(), match.end()
            spaced = text[start - 1:start].isspace() and text[end:end + 1].isspace()
            tokens.append(Token(kind, match.group(0), start, end, spaced))
    _match_brackets(tokens)
    return tokens


def _match_brackets(tokens):
    open_ones = []
    for i, token in enumerate(tokens):
        mark = token.text
        if token.kind != "mark":
            continue
        if mark in "([{":
            open_ones.append(i)
        elif mark == "<" and not token.spaced or mark == "<" and i and tokens[i - 1].text == "template":
            if i and tokens[i - 1].text != "operator":
                token.template = True
                open_ones.append(i)
        elif mark == ">" and not token.spaced or mark == ">" and open_ones and tokens[open_ones[-1]].template:
            if open_ones and tokens[open_ones[-1]].template:
                token.template = True
                _pair(tokens, open_ones.pop(), i)
        elif mark in _CLOSES:
            while open_ones and tokens[open_ones[-1]].template:  # not a template after all
                tokens[open_ones.pop()].template = False
            if not open_ones or tokens[open_ones[-1]].text != _CLOSES[mark]:
                raise ValueError(f"offset {token.start}: {mark} closes nothing")
            _pair(tokens, open_ones.pop(), i)
    if any(not tokens[i].template for i in open_ones):
        raise ValueError(f"offset {tokens[open_ones[-1]].start}: {tokens[open_ones[-1]].text} is not closed")


def _pair(tokens, first, second):
    tokens[first].mate, tokens[second].mate = second, first
