#!/usr/bin/env python3
"""Renders chat templates with python3-jinja2 in the environment that Hugging Face tokenizers use.

    render_reference.py                                  every template here with every context here
    render_reference.py -t FILE ... -c FILE.json ...     these templates with these contexts

Prints one JSON object: {template name: {context name: {"text": ...} or {"error": message}}}; names are file names
without the ending. The context's keys are the template's variables. Needed by tests only; exits 77 without jinja2.
"""
import argparse
import datetime
import json
import pathlib
import sys

try:
    import jinja2
    import jinja2.ext
    import jinja2.nodes
    import jinja2.sandbox
except ImportError:
    print("python3-jinja2 is not installed", file=sys.stderr)
    sys.exit(77)

HERE = pathlib.Path(__file__).resolve().parent


class GenerationTag(jinja2.ext.Extension):
    """`{% generation %}...{% endgeneration %}` marks what the assistant wrote; for rendering it is transparent."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    """Replaces jinja2's own filter, which escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                       extensions=[GenerationTag, jinja2.ext.loopcontrols])
    env.filters["tojson"] = to_json
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return env


def render(env, source, context):
    try:
        return {"text": env.from_string(source).render(**context)}
    except Exception as error:  # templates fail in many ways: TemplateError, TypeError, AttributeError, ...
        return {"error": f"{type(error).__name__}: {error}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-t", "--template", nargs="*", type=pathlib.Path)
    parser.add_argument("-c", "--context", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    templates = arguments.template or sorted((HERE / "templates").glob("*.jinja"))
    contexts = arguments.context or sorted((HERE / "contexts").glob("*.json"))
    env = environment()
    loaded = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in contexts}
    out = {path.stem: {name: render(env, path.read_text(encoding="utf-8"), context) for name, context in loaded.items()}
           for path in templates}
    json.dump(out, sys.stdout, ensure_ascii=False, indent=1)
    print()


if __name__ == "__main__":
    main()
