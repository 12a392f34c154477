// Code highlighting, loaded with the first block that names a language. Builds nodes from the highlighter's tree, so that
// no text is parsed as markup.
import hljs from "highlight.js/lib/core";
import bash from "highlight.js/lib/languages/bash";
import cpp from "highlight.js/lib/languages/cpp";
import css from "highlight.js/lib/languages/css";
import diff from "highlight.js/lib/languages/diff";
import go from "highlight.js/lib/languages/go";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import markdown from "highlight.js/lib/languages/markdown";
import python from "highlight.js/lib/languages/python";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";

const languages = { bash, cpp, css, diff, go, java, javascript, json, markdown, python, rust, sql, typescript, xml, yaml };
for (const [name, language] of Object.entries(languages)) hljs.registerLanguage(name, language);

const MOST = 50_000; // characters; longer code is not highlighted

type Tree = string | { scope?: string; children: Tree[] };

function node(tree: Tree): Node {
  if (typeof tree === "string") return document.createTextNode(tree);
  const span = document.createElement("span");
  if (tree.scope) span.className = `hl-${tree.scope.split(".")[0]}`;
  span.append(...tree.children.map(node));
  return span;
}

export function highlight(into: HTMLElement, text: string, language: string): void {
  if (!hljs.getLanguage(language) || text.length > MOST) return;
  const result = hljs.highlight(text, { language, ignoreIllegals: true }) as unknown as { _emitter: { rootNode: { children: Tree[] } } };
  into.replaceChildren(...result._emitter.rootNode.children.map(node));
}
