#include "prompt/penn_trees.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tensor/mapped_file.h"

namespace millrace {
namespace {

constexpr std::string_view kTreeBlanks = " \t\r\n\f\v";
constexpr int64_t kMaxDepth = 200;
constexpr size_t kMaxFile = size_t{64} << 20;  // bytes

struct Node {
  std::string_view label;  // "NP-SBJ"; of a leaf's parent "NN"
  std::string_view word;   // of a leaf's parent; else empty
  std::vector<Node> children;
  size_t begin = 0, end = 0;  // bytes of PennTree::text
};

bool is_tree_blank(char c) { return kTreeBlanks.find(c) != std::string_view::npos; }

// How a leaf is written in text.
std::string_view written_leaf(std::string_view leaf) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kWritten = {{{"-LRB-", "("},
                                                                                      {"-RRB-", ")"},
                                                                                      {"-LSB-", "["},
                                                                                      {"-RSB-", "]"},
                                                                                      {"-LCB-", "{"},
                                                                                      {"-RCB-", "}"},
                                                                                      {"``", "\""},
                                                                                      {"''", "\""}}};
  for (const auto& [name, text] : kWritten)
    if (leaf == name) return text;
  return leaf;
}

class PennReader {
 public:
  explicit PennReader(std::string_view source) : source_(source) {}

  Result<std::vector<PennTree>> read() {
    std::vector<PennTree> out;
    for (skip_blanks(); at_ < source_.size(); skip_blanks()) {
      tree_ = {};
      tree_.begin = at_;
      MILLRACE_TRY(const Node root, node(0));
      tree_.end = at_;
      if (tree_.text.empty()) return Error::user(fmt::format("the tree at byte {} has no words", tree_.begin));
      find_modifiers(root);
      find_core(root);
      out.push_back(std::move(tree_));
    }
    return out;
  }

 private:
  void skip_blanks() {
    while (at_ < source_.size() && is_tree_blank(source_[at_])) ++at_;
  }

  std::string_view word() {
    const size_t begin = at_;
    while (at_ < source_.size() && !is_tree_blank(source_[at_]) && source_[at_] != '(' && source_[at_] != ')') ++at_;
    return source_.substr(begin, at_ - begin);
  }

  Result<Node> node(int64_t depth) {
    if (at_ >= source_.size() || source_[at_] != '(')
      return Error::user(fmt::format("expected '(' at byte {} of the parses", at_));
    if (depth > kMaxDepth) return Error::user(fmt::format("the tree at byte {} is deeper than {}", at_, kMaxDepth));
    ++at_;
    skip_blanks();
    Node out;
    out.label = word();
    out.begin = tree_.text.size();
    for (skip_blanks(); at_ < source_.size() && source_[at_] != ')'; skip_blanks()) {
      if (source_[at_] == '(') {
        MILLRACE_TRY(Node child, node(depth + 1));
        if (child.end > child.begin) out.children.push_back(std::move(child));
        continue;
      }
      add_leaf(out);
    }
    if (at_ >= source_.size()) return Error::user("the parses end inside a tree: a ')' is missing");
    ++at_;
    out.end = tree_.text.size();
    return out;
  }

  void add_leaf(Node& parent) {
    const size_t begin = at_;
    parent.word = word();
    if (parent.label == "-NONE-") return;  // a trace
    tree_.leaves.push_back({begin, parent.word.size(), tree_.text.size()});
    tree_.text += written_leaf(parent.word);
  }

  static std::string_view category(const Node& node) { return node.label.substr(0, node.label.find_first_of("-=", 1)); }

  static bool is_one_of(std::string_view text, std::initializer_list<std::string_view> set) {
    return std::ranges::find(set, text) != set.end();
  }

  static bool is_adverbial(const Node& node) {
    for (const std::string_view tag : {"-ADV", "-TMP", "-LOC", "-PRP", "-MNR", "-DIR"})
      if (node.label.find(tag) != std::string_view::npos) return true;
    return false;
  }

  static std::string first_word(const Node& node) {
    const Node* at = &node;
    while (!at->children.empty()) at = &at->children.front();
    std::string out(at->word);
    for (char& c : out)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return out;
  }

  // Returns true if `parent` remains a constituent of its kind without its child.
  static bool is_modifier(const Node& parent, size_t child) {
    const Node& node = parent.children[child];
    const std::string_view own = category(node), above = category(parent);
    if (parent.children.size() < 2) return false;
    if (is_adverbial(node) || is_one_of(own, {"PP", "ADVP", "PRN", "RRC", "INTJ"})) return true;
    const bool before_noun = is_one_of(above, {"NP", "NX", "WHNP"}) && child + 1 < parent.children.size();
    if (is_one_of(own, {"ADJP", "JJ", "JJR", "JJS"})) return before_noun;
    if (own == "RB") return !is_one_of(first_word(node), {"not", "n't", "never"});
    if (own == "VP") return above == "NP" && child > 0;  // a reduced relative clause
    if (own != "SBAR") return false;
    return above == "NP" ||
           is_one_of(first_word(node), {"because", "although", "though", "while", "when", "whenever", "after", "before",
                                        "since", "if", "unless", "until", "as", "whereas", "once"});
  }

  void find_modifiers(const Node& node) {
    for (size_t i = 0; i < node.children.size(); ++i) {
      const Node& child = node.children[i];
      if (is_modifier(node, i)) {
        size_t begin = child.begin;  // between commas, the first of them goes too
        if (begin > 0 && tree_.text[begin - 1] == ',' && child.end < tree_.text.size() && tree_.text[child.end] == ',')
          --begin;
        tree_.constituents.modifiers.push_back({static_cast<int64_t>(begin), static_cast<int64_t>(child.end - begin)});
      }
      find_modifiers(child);
    }
  }

  // Chunks of the core: sentences and verb phrases are opened, everything else is one chunk.
  void find_core(const Node& node) {
    for (size_t i = 0; i < node.children.size(); ++i) {
      const Node& child = node.children[i];
      if (is_modifier(node, i)) continue;
      const std::string_view own = category(child);
      if (!child.children.empty() && (own.starts_with("S") || own == "VP" || own == "ROOT" || own == "TOP"))
        find_core(child);
      else
        tree_.constituents.core.push_back(
            {static_cast<int64_t>(child.begin), static_cast<int64_t>(child.end - child.begin)});
    }
    if (node.children.empty())
      tree_.constituents.core.push_back(
          {static_cast<int64_t>(node.begin), static_cast<int64_t>(node.end - node.begin)});
  }

  const std::string_view source_;
  size_t at_ = 0;
  PennTree tree_;
};

}  // namespace

Result<std::vector<PennTree>> read_penn_trees(std::string_view source) { return PennReader(source).read(); }

std::string penn_key(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (!is_tree_blank(c)) out += c;
  return out;
}

Result<std::shared_ptr<const ParseFile>> ParseFile::open(const std::string& path) {
  MILLRACE_TRY(const auto mapped, MappedFile::open(path));
  const auto bytes = mapped->bytes();
  if (bytes.size() > kMaxFile)
    return Error::user(fmt::format("{}: has {} bytes; parses of at most {} are read", path, bytes.size(), kMaxFile));
  auto trees = read_penn_trees({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!trees.ok()) return Error{trees.error().kind, fmt::format("{}: {}", path, trees.error().message)};
  auto out = std::make_shared<ParseFile>();
  for (PennTree& tree : *trees) {
    std::string key = penn_key(tree.text);
    out->trees_.emplace(std::move(key), std::move(tree));
  }
  return std::shared_ptr<const ParseFile>(std::move(out));
}

const PennTree* ParseFile::find(const std::string& key) const {
  const auto found = trees_.find(key);
  return found == trees_.end() ? nullptr : &found->second;
}

}  // namespace millrace
