#include "prompt/prompt_constituents.h"

#include <algorithm>
#include <optional>

#include "prompt/english_parser.h"
#include "prompt/text_similarity.h"

namespace millrace {
namespace {

constexpr std::string_view kBlanksBeforeTree = " \t\r\n\f\v";

// Bytes of each token in a text without white space.
struct ByteRange {
  size_t begin = 0, end = 0;
};

std::string range_text(const PromptView& prompt, TokenRange range) {
  std::string out;
  for (int64_t i = range.first; i < range.first + range.count; ++i) out += prompt.texts[static_cast<size_t>(i)];
  return out;
}

// Tokens of `sentence` that lie in bytes [first, first + count) of its text, as a range; count 0: none.
TokenRange tokens_in(TokenRange bytes, TokenRange sentence, std::span<const ByteRange> of_tokens) {
  TokenRange out{sentence.first, 0};
  const auto begin = static_cast<size_t>(bytes.first), end = static_cast<size_t>(bytes.first + bytes.count);
  for (size_t i = 0; i < of_tokens.size(); ++i) {
    const ByteRange& token = of_tokens[i];
    if (token.begin < begin || token.end > end || token.begin == token.end) continue;
    if (out.count == 0) out.first = sentence.first + static_cast<int64_t>(i);
    out.count = sentence.first + static_cast<int64_t>(i) + 1 - out.first;
  }
  return out;
}

std::vector<TokenRange> all_tokens_in(std::span<const TokenRange> bytes, TokenRange sentence,
                                      std::span<const ByteRange> of_tokens) {
  std::vector<TokenRange> out;
  for (const TokenRange& one : bytes)
    if (const TokenRange tokens = tokens_in(one, sentence, of_tokens); tokens.count > 0) out.push_back(tokens);
  return out;
}

PromptSentence by_tree(const PennTree& tree, TokenRange sentence, std::span<const ByteRange> of_tokens) {
  return {sentence,
          {all_tokens_in(tree.constituents.modifiers, sentence, of_tokens),
           all_tokens_in(tree.constituents.core, sentence, of_tokens)}};
}

PromptSentence by_rules(const PromptView& prompt, TokenRange sentence) {
  const auto texts = prompt.texts.subspan(static_cast<size_t>(sentence.first), static_cast<size_t>(sentence.count));
  const std::vector<char> fixed(texts.size());
  std::vector<TokenRange> units = split_units(texts, fixed, TextUnit::word);
  std::erase_if(units, [&](const TokenRange& unit) {  // line breaks belong to no constituent
    return penn_key(range_text(prompt, {sentence.first + unit.first, unit.count})).empty();
  });
  std::vector<std::string> words;
  for (const TokenRange& unit : units) words.push_back(range_text(prompt, {sentence.first + unit.first, unit.count}));
  const auto in_tokens = [&](const std::vector<TokenRange>& ranges) {
    std::vector<TokenRange> out;
    for (const TokenRange& range : ranges) {
      const TokenRange &first = units[static_cast<size_t>(range.first)],
                       &last = units[static_cast<size_t>(range.first + range.count - 1)];
      out.push_back({sentence.first + first.first, last.first + last.count - first.first});
    }
    return out;
  };
  const Constituents found = parse_english(words);
  return {sentence, {in_tokens(found.modifiers), in_tokens(found.core)}};
}

PromptSentence parse_sentence(const PromptView& prompt, TokenRange sentence, const ParseFile* parses) {
  if (!parses) return by_rules(prompt, sentence);
  std::string key;
  std::vector<ByteRange> of_tokens;
  for (int64_t i = sentence.first; i < sentence.first + sentence.count; ++i) {
    const size_t begin = key.size();
    key += penn_key(prompt.texts[static_cast<size_t>(i)]);
    of_tokens.push_back({begin, key.size()});
  }
  const PennTree* tree = parses->find(key);
  return tree ? by_tree(*tree, sentence, of_tokens) : by_rules(prompt, sentence);
}

// The trees of a part that is a parse; none if it is not.
std::vector<PennTree> trees_of(const std::string& text) {
  const size_t first = text.find_first_not_of(kBlanksBeforeTree);
  if (first == std::string::npos || text[first] != '(') return {};
  auto trees = read_penn_trees(text);
  return trees.ok() ? std::move(*trees) : std::vector<PennTree>();
}

// Where bytes [begin, end) of the source of a tree are in its text; empty: they are brackets, labels or white space.
ByteRange text_bytes(const PennTree& tree, size_t begin, size_t end) {
  std::optional<ByteRange> out;
  for (size_t i = 0; i < tree.leaves.size(); ++i) {
    const PennTree::Leaf& leaf = tree.leaves[i];
    if (leaf.begin >= end || leaf.begin + leaf.count <= begin) continue;
    const size_t next = i + 1 < tree.leaves.size() ? tree.leaves[i + 1].text_begin : tree.text.size();
    const size_t from = begin > leaf.begin ? begin - leaf.begin : 0;
    const size_t to = end < leaf.begin + leaf.count ? end - leaf.begin : leaf.count;
    const ByteRange own = {std::min(leaf.text_begin + from, next - 1), std::min(leaf.text_begin + to, next)};
    out = out ? ByteRange{out->begin, own.end} : own;
  }
  return out.value_or(ByteRange{});
}

// Adds the sentences of a part that is a parse, and marks its brackets and labels.
void add_trees(const PromptView& prompt, TokenRange part, std::span<const PennTree> trees, PromptSyntax& out) {
  size_t at = 0;  // bytes of the part
  int64_t token = part.first;
  const int64_t part_end = part.first + part.count;
  for (size_t t = 0; t < trees.size(); ++t) {
    const size_t tree_end = t + 1 < trees.size() ? trees[t + 1].begin : std::string::npos;
    TokenRange sentence{token, 0};
    std::vector<ByteRange> of_tokens;
    for (; token < part_end && at < tree_end; ++token) {
      const size_t end = at + prompt.texts[static_cast<size_t>(token)].size();
      of_tokens.push_back(text_bytes(trees[t], at, end));
      const bool line_break = prompt.texts[static_cast<size_t>(token)].find('\n') != std::string::npos;
      if (of_tokens.back().begin == of_tokens.back().end && !line_break) out.markup[static_cast<size_t>(token)] = 1;
      at = end;
      ++sentence.count;
    }
    if (sentence.count > 0) out.sentences.push_back(by_tree(trees[t], sentence, of_tokens));
  }
}

}  // namespace

PromptSyntax parse_prompt(const PromptView& prompt, const CompressionTask& task, const ParseFile* parses) {
  PromptSyntax out;
  out.markup.assign(prompt.tokens.size(), 0);
  CompressionTask one = task;
  for (const TokenRange& part : task.parts) {
    if (const auto trees = trees_of(range_text(prompt, part)); !trees.empty()) {
      add_trees(prompt, part, trees, out);
      continue;
    }
    one.parts = {part};
    for (const TokenRange& sentence : unit_texts(prompt, one, false))
      out.sentences.push_back(parse_sentence(prompt, sentence, parses));
  }
  return out;
}

}  // namespace millrace
