// Fuzzes constrained generation: the bytes choose a constraint from a grammar of constraints, then the actions of a
// stream under that constraint. Asserts, for every kind of constraint:
//
//   compiling   ends within its budget, and the budget covers the actual allocations (measured with allocator hooks);
//   masks       sampled tokens inside a mask are accepted and those outside are not; an incomplete text has an allowed
//               token or reports which bound was exceeded; the mask is the same after a rollback, in a copy, and after
//               a reset and the same tokens; forced text is accepted;
//   texts       text generated under a regex or a grammar is in its language, and texts made from the bytes are
//   accepted
//               exactly if they are in it, according to a matcher that shares no code with the one under test; text
//               generated under a schema is JSON that a fresh matcher accepts.
//
// Covered failure classes: ambiguity beyond every bound (rules that double, many alternatives that call themselves,
// calls that return to many callers), accesses to sets and frames that do not exist, nested repetitions and their
// shortcuts, lists of optional members in both of their layouts, counted strings and lists, text before a trigger,
// matchers copied, rolled back and reset at any of these points, and memory or time that grows faster than what is
// counted.
#include <sanitizer/allocator_interface.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/json_library.h"
#include "text/grammar/constraint.h"
#include "text/grammar/json_rules.h"

namespace {

using namespace millrace;

const Constraint* g_constraint = nullptr;  // the constraint under test, printed on failure
std::string g_text;                        // ... and the text so far

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "constrained_generation: %s\nconstraint: %s\n", what, g_constraint->text.c_str());
  std::fprintf(stderr, "trigger: '%s'\ntext: '%s'\n", g_constraint->trigger.c_str(), g_text.c_str());
  std::abort();
}

int64_t g_allocated = 0, g_peak = 0;  // bytes, while g_watching
bool g_watching = false;

void on_malloc(const volatile void*, size_t size) {
  if (!g_watching) return;
  g_allocated += static_cast<int64_t>(size);
  g_peak = std::max(g_peak, g_allocated);
}
void on_free(const volatile void* at) {
  if (g_watching && at)
    g_allocated -= static_cast<int64_t>(__sanitizer_get_allocated_size(const_cast<const void*>(at)));
}

// Reads the input as a sequence of choices; zeros after its end.
class Choices {
 public:
  Choices(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  uint32_t up_to(uint32_t most) { return at_ < size_ ? data_[at_++] % (most + 1) : 0; }
  bool one_in(uint32_t n) { return up_to(n - 1) == n - 1; }
  bool done() const { return at_ >= size_; }

 private:
  const uint8_t* data_;
  size_t size_, at_ = 0;
};

// An expression that can be written as a regex or as GBNF. Definition says what it matches.
struct Node {
  enum class Kind { text, set, sequence, choice, repeat, rule } kind = Kind::text;
  std::string text;  // text, or the members of a set
  std::vector<Node> parts;
  uint32_t min = 0, max = 0;  // repeat; max 0: unbounded
  uint32_t rule = 0;
};

Node make_node(Choices& choices, int depth, uint32_t rules) {
  static const char* kTexts[] = {"a", "b", "ab", "aa", "c", "\xC3\xA9", "-", "", "abc", "0"};
  static const char* kSets[] = {"ab", "abc", "01", "a", "bc-"};
  static constexpr std::pair<uint32_t, uint32_t> kRepeats[] = {{0, 0}, {1, 0},  {0, 1}, {0, 3},   {2, 5},
                                                               {3, 3}, {0, 40}, {5, 0}, {20, 30}, {0, 200}};
  Node node;
  const uint32_t kind = depth <= 0 ? choices.up_to(2) : choices.up_to(9);
  if (kind <= 1) {
    node.text = kTexts[choices.up_to(std::size(kTexts) - 1)];
  } else if (kind == 2) {
    if (rules > 0 && choices.one_in(2))
      node.kind = Node::Kind::rule, node.rule = choices.up_to(rules - 1);
    else
      node.kind = Node::Kind::set, node.text = kSets[choices.up_to(std::size(kSets) - 1)];
  } else if (kind <= 6) {
    node.kind = kind <= 4 ? Node::Kind::sequence : Node::Kind::choice;
    for (uint32_t i = 0, n = 1 + choices.up_to(3); i < n; ++i)
      node.parts.push_back(make_node(choices, depth - 1, rules));
  } else {
    node.kind = Node::Kind::repeat;
    std::tie(node.min, node.max) = kRepeats[choices.up_to(std::size(kRepeats) - 1)];
    node.parts.push_back(make_node(choices, depth - 1, rules));
  }
  return node;
}

std::string written(const Node& node, bool gbnf) {
  std::string out;
  switch (node.kind) {
    case Node::Kind::text: return gbnf ? "\"" + node.text + "\"" : node.text;
    case Node::Kind::set:
      for (char c : node.text) out += c == '-' ? "\\-" : std::string(1, c);
      return "[" + out + "]";
    case Node::Kind::rule: return "r" + std::to_string(node.rule);
    case Node::Kind::sequence:
    case Node::Kind::choice:
      for (const Node& part : node.parts)
        out += (out.empty() ? "" : node.kind == Node::Kind::choice ? "|" : " ") + written(part, gbnf);
      if (!gbnf) {
        out.clear();
        for (size_t i = 0; i < node.parts.size(); ++i)
          out += (i > 0 && node.kind == Node::Kind::choice ? "|" : "") + written(node.parts[i], gbnf);
      }
      return (gbnf ? "(" : "(?:") + out + ")";
    case Node::Kind::repeat: {
      out = (gbnf ? "(" : "(?:") + written(node.parts[0], gbnf) + "){" + std::to_string(node.min) + ",";
      return out + (node.max ? std::to_string(node.max) : "") + "}";
    }
  }
  return out;
}

// The reference matcher: all end positions of matches from a start position, memoized.
class Definition {
 public:
  Definition(const std::vector<Node>& rules, std::string_view text) : rules_(rules), text_(text) {}
  bool matches(const Node& root) { return ends(root, 0).contains(text_.size()); }

 private:
  using Ends = std::set<size_t>;
  const Ends& ends(const Node& node, size_t at) {
    const auto [entry, fresh] = known_.try_emplace({&node, at});
    if (!fresh) return entry->second;  // empty while a left-recursive rule is being evaluated
    Ends found = evaluate(node, at);
    return known_[{&node, at}] = std::move(found);
  }
  Ends each(const Node& node, const Ends& from) {
    Ends out;
    for (size_t at : from) out.merge(Ends(ends(node, at)));
    return out;
  }
  Ends evaluate(const Node& node, size_t at) {
    switch (node.kind) {
      case Node::Kind::text:
        return text_.substr(at, node.text.size()) == node.text ? Ends{at + node.text.size()} : Ends{};
      case Node::Kind::set:
        return at < text_.size() && node.text.find(text_[at]) != std::string::npos ? Ends{at + 1} : Ends{};
      case Node::Kind::rule: return ends(rules_[node.rule], at);
      case Node::Kind::sequence: {
        Ends now{at};
        for (const Node& part : node.parts) now = each(part, now);
        return now;
      }
      case Node::Kind::choice: {
        Ends all;
        for (const Node& part : node.parts) all.merge(Ends(ends(part, at)));
        return all;
      }
      case Node::Kind::repeat: {
        Ends now{at}, all;
        if (node.min == 0) all = now;
        for (uint32_t i = 1; (node.max == 0 || i <= node.max) && !now.empty(); ++i) {
          now = each(node.parts[0], now);
          const size_t before = all.size();
          if (i >= node.min) all.insert(now.begin(), now.end());
          if (i >= node.min && i > 1 && all.size() == before) break;
        }
        return all;
      }
    }
    return {};
  }

  const std::vector<Node>& rules_;
  std::string_view text_;
  std::map<std::pair<const Node*, size_t>, Ends> known_;
};

using Json = nlohmann::ordered_json;

Json make_schema(Choices& choices, int depth) {
  static const char* kNames[] = {"name", "na", "a", "b", "type", "nam\"e", "x"};
  Json schema = Json::object();
  switch (depth <= 0 ? choices.up_to(4) : choices.up_to(9)) {
    case 0:
      schema["type"] = "string";
      if (choices.one_in(2)) schema["minLength"] = choices.up_to(6);
      if (choices.one_in(2)) schema["maxLength"] = 6 + choices.up_to(6);
      if (choices.one_in(4)) schema["pattern"] = "^" + written(make_node(choices, 2, 0), false) + "$";
      return schema;
    case 1:
      schema["type"] = choices.one_in(2) ? "integer" : "number";
      if (choices.one_in(2)) schema["minimum"] = static_cast<int>(choices.up_to(40)) - 20;
      if (choices.one_in(2)) schema["maximum"] = static_cast<int>(choices.up_to(200)) + 20;
      return schema;
    case 2: return Json{{"enum", {"a", "ab", 12, true, nullptr, "\xC3\xA9"}}};
    case 3: return Json{{"type", {"boolean", "null"}}};
    case 4: return choices.one_in(2) ? Json{{"$ref", "#"}} : Json(true);
    case 5:
    case 6: {
      schema["type"] = "array";
      schema["items"] = make_schema(choices, depth - 1);
      if (choices.one_in(2)) schema["minItems"] = choices.up_to(4);
      if (choices.one_in(2)) schema["maxItems"] = 4 + choices.up_to(4);
      return schema;
    }
    case 7: return Json{{"anyOf", {make_schema(choices, depth - 1), make_schema(choices, depth - 1)}}};
    default: break;
  }
  schema["type"] = "object";
  schema["properties"] = Json::object();
  schema["required"] = Json::array();
  const bool many = choices.one_in(4);
  const uint32_t count = many ? 60 + choices.up_to(30) : choices.up_to(5);
  const uint32_t step = 1 + choices.up_to(100);
  const Json shared = make_schema(choices, depth - 1);
  for (uint32_t i = 0; i < count; ++i) {
    const std::string name = many ? "k" + std::to_string(i * step % 101) : kNames[choices.up_to(std::size(kNames) - 1)];
    schema["properties"][name] = many && i > 3 ? shared : make_schema(choices, depth - 1);
    if (many ? i % 29 == step % 29 : choices.one_in(3)) schema["required"].push_back(name);
  }
  if (choices.one_in(2))
    schema["additionalProperties"] = choices.one_in(2) ? make_schema(choices, depth - 1) : Json(false);
  if (choices.one_in(6)) schema["minProperties"] = 1 + choices.up_to(2);
  if (choices.one_in(4)) schema["maxProperties"] = choices.up_to(5);
  return schema;
}

struct Case {
  Constraint constraint;
  std::vector<Node> rules;  // the first is the root; empty if there is no reference definition
};

std::string gbnf_of(const std::vector<Node>& rules) {
  std::string text = "root ::= r0\n";
  for (size_t r = 0; r < rules.size(); ++r) text += "r" + std::to_string(r) + " ::= " + written(rules[r], true) + "\n";
  return text;
}

Case make_case(Choices& choices) {
  Case out;
  Constraint& c = out.constraint;
  const uint32_t kind = choices.up_to(9);
  if (kind <= 2) {
    c.kind = Constraint::Kind::regex;
    out.rules.push_back(make_node(choices, 4, 0));
    c.text = written(out.rules[0], false);
  } else if (kind <= 5) {
    c.kind = Constraint::Kind::grammar;
    const uint32_t rules = 1 + choices.up_to(5);
    for (uint32_t r = 0; r < rules; ++r) out.rules.push_back(make_node(choices, 3, rules));
    c.text = gbnf_of(out.rules);
  } else if (kind == 6) {  // ambiguous grammars
    c.kind = Constraint::Kind::grammar;
    const uint32_t shape = choices.up_to(2), n = 2 + choices.up_to(shape == 1 ? 250 : 60);
    const std::string end = choices.one_in(2) ? "\"\"" : "\"a\"";
    if (shape == 0) {
      for (uint32_t r = 0; r < n; ++r)
        c.text += "r" + std::to_string(r) + " ::= r" + std::to_string(r + 1) + " r" + std::to_string(r + 1) + "\n";
      c.text = "root ::= r0\n" + c.text + "r" + std::to_string(n) + " ::= " + end + "\n";
    } else if (shape == 1) {
      for (uint32_t r = 0; r < n; ++r) {
        const std::string name = "r" + std::to_string(r);
        c.text += name + " ::= \"a\" " + name + " \"" + std::to_string(r % 10) + "\" | " + end + "\n";
        c.text = (r ? "" : "root ::= r0\n") + c.text;
      }
      std::string all = "root ::= r0";
      for (uint32_t r = 1; r < n; ++r) all += " | r" + std::to_string(r);
      c.text.replace(0, c.text.find('\n'), all);
    } else {
      c.text = "root ::= s\ns ::= \"a\" s s s | \"ab\" s | " + end + "\n";
    }
  } else if (kind <= 8) {
    c.kind = Constraint::Kind::json_schema;
    c.text = make_schema(choices, 3).dump();
  } else if (choices.one_in(2)) {
    c.kind = Constraint::Kind::choice;
    for (uint32_t i = 0, n = 1 + choices.up_to(20); i < n; ++i)
      c.choices.push_back("a" + std::string(choices.up_to(5), 'b') + static_cast<char>('a' + choices.up_to(5)));
  } else {
    c.kind = Constraint::Kind::structure;
    Json elements = Json::array({Json{{"type", "regex"}, {"pattern", written(make_node(choices, 2, 0), false)}}});
    if (choices.one_in(2)) elements.push_back(Json{{"type", "text_until"}, {"end", "ab"}});
    if (choices.one_in(2)) elements.push_back(Json{{"type", "json_schema"}, {"json_schema", make_schema(choices, 2)}});
    elements.push_back(Json{{"type", "triggered_tags"},
                            {"triggers", {"<a"}},
                            {"tags",
                             {Json{{"begin", "<a>"},
                                   {"content", {{"type", "json_schema"}, {"json_schema", make_schema(choices, 1)}}},
                                   {"end", "</a>"}}}}});
    c.text = Json{{"type", "sequence"}, {"elements", elements}}.dump();
  }
  if (choices.one_in(8)) c.trigger = "ba", out.rules.clear();
  return out;
}

std::vector<std::string> make_pieces() {
  std::vector<std::string> pieces;
  for (int byte = 0; byte < 256; ++byte) pieces.push_back(std::string(1, static_cast<char>(byte)));
  for (const char* piece :
       {"\":",      "\": \"", "\",",  "\", \"", "\"}",   "{\"",  "[\"",   "},",   "}}",  "}]",  "],",       "[[",
        "{}",       "[]",     " \"",  "\n  ",   "  ",    "true", "false", "null", "tr",  "12",  "0.5",      "-1",
        "\xC3\xA9", "\xA9\"", "name", "na",     "me\":", "type", "ab",    "aa",   "aaa", "abc", "aaaaaaaa", "ba",
        "bab",      "k1",     "k10",  "\"k",    "<a>",   "</a>", "a,\"",  "1,2",  "1]",  "0}",  "abab",     "bc-"})
    pieces.push_back(piece);
  pieces.push_back("");
  return pieces;
}

// One stream: tokens chosen by the bytes, rollbacks, copies, resets and forced text.
class Generation {
 public:
  Generation(const CompiledGrammar& compiled, Choices& choices)
      : compiled_(compiled), choices_(choices), matcher_(compiled), bits_(matcher_.words()) {}

  void run() {
    for (int turn = 0; turn < 60 && !choices_.done(); ++turn) {
      if (!check_mask()) return;
      switch (choices_.up_to(15)) {
        case 0: roll_back(); break;
        case 1: {
          GrammarMatcher copy = matcher_;
          matcher_ = std::move(copy);
          break;
        }
        case 2: restart(); break;
        case 3: force(); break;
        default: break;
      }
      if (matcher_.exceeded() != ParseBound::none || !check_mask()) return;
      if (matcher_.complete() && (count_ == 0 || choices_.one_in(6))) break;
      choose();
      if (matcher_.exceeded() != ParseBound::none) return;
    }
    whole_ = matcher_.complete();
  }
  bool whole() const { return whole_; }
  const std::string& text() const { return text_; }

 private:
  bool bit(TokenId token) const { return bits_[static_cast<size_t>(token) / 64] >> (token % 64) & 1; }

  // Computes the mask and checks that it agrees with allows().
  bool check_mask() {
    g_text = text_;
    count_ = matcher_.mask(bits_);
    if (matcher_.exceeded() != ParseBound::none) {
      require(count_ == 0, "the mask is not empty although a bound was exceeded");
      return false;
    }
    require(count_ > 0 || matcher_.complete(), "an incomplete text has no allowed token");
    require(!matcher_.exhausted() || count_ == 0, "an exhausted matcher allows tokens");
    const auto [entry, fresh] = masks_.try_emplace(tokens_, bits_);
    require(fresh || entry->second == bits_, "the same tokens gave another mask");
    const int32_t vocab = compiled_.masks->trie().vocab_size();
    for (int i = 0; i < 6; ++i) {
      const auto token =
          static_cast<TokenId>((choices_.up_to(255) + 256 * choices_.up_to(1)) % static_cast<uint32_t>(vocab));
      const bool allowed = matcher_.allows(token);
      if (matcher_.exceeded() != ParseBound::none) return false;
      require(allowed == bit(token), "mask and allows() disagree about a token");
    }
    return true;
  }

  void choose() {
    uint32_t skip = choices_.up_to(255) % static_cast<uint32_t>(count_);
    const int32_t vocab = compiled_.masks->trie().vocab_size();
    TokenId token = vocab - 1;  // longer pieces have high ids and are more likely to close something
    for (; token >= 0; --token)
      if (bit(token) && skip-- == 0) break;
    const bool accepted = matcher_.accept(token);
    require(accepted || matcher_.exceeded() != ParseBound::none, "a token in the mask is not accepted");
    if (!accepted) return;
    tokens_.push_back(token);
    text_ += compiled_.masks->trie().piece(token);
  }

  void roll_back() {
    const size_t requested = std::min<size_t>(tokens_.size(), choices_.up_to(4)), tokens = matcher_.rollback(requested);
    require(tokens <= requested, "rollback removed more tokens than requested");
    for (size_t i = 0; i < tokens; ++i) {
      text_.resize(text_.size() - compiled_.masks->trie().piece(tokens_.back()).size());
      tokens_.pop_back();
    }
  }

  void restart() {
    matcher_.reset();
    for (TokenId token : tokens_) {
      const bool accepted = matcher_.accept(token);
      require(accepted || matcher_.exceeded() != ParseBound::none,
              "accepted tokens are not accepted again after a reset");
      if (!accepted) return;
    }
  }

  void force() {
    const std::string forced = matcher_.jump_ahead(64);
    if (forced.empty() || matcher_.exceeded() != ParseBound::none) return;
    require(!matcher_.complete(), "a complete text has forced text");
    GrammarMatcher trial = matcher_;
    require(trial.accept_text(forced) || trial.exceeded() != ParseBound::none, "forced text is not accepted");
    for (TokenId token = 0; token < 256; ++token)
      require(static_cast<char>(token) == forced[0] || !bit(token),
              "a token that contradicts the forced text is in the mask");
  }

  const CompiledGrammar& compiled_;
  Choices& choices_;
  GrammarMatcher matcher_;
  std::vector<uint64_t> bits_;
  size_t count_ = 0;
  std::vector<TokenId> tokens_;
  std::map<std::vector<TokenId>, std::vector<uint64_t>> masks_;
  std::string text_;
  bool whole_ = false;
};

bool accepts(const CompiledGrammar& compiled, std::string_view text, bool* known) {
  GrammarMatcher matcher(compiled);
  const bool taken = text.empty() || matcher.accept_text(text);
  *known = matcher.exceeded() == ParseBound::none;
  return taken && matcher.complete();
}

Result<Grammar> compile(const Constraint& constraint) {
  CompileBudget budget(CompileBounds{int64_t{24} << 20, 5});
  GrammarLimits limits;
  limits.nfa_states = 40'000;
  limits.dfa_states = 4'000;
  limits.total_states = 20'000;
  limits.alternatives = 16;
  limits.budget = &budget;
  g_allocated = g_peak = 0;
  g_watching = true;
  auto grammar = compile_constraint(constraint, limits);
  g_watching = false;
  require(g_peak <= 2 * budget.peak_bytes() + (int64_t{4} << 20),
          "compiling allocates more than it charges to its budget");
  require(g_peak <= int64_t{56} << 20, "compiling allocates more than its budget");
  require(budget.held_bytes() >= 0, "the budget was refunded more than it was charged");
  return grammar;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int hooks = __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
  (void)hooks;
  Choices choices(data, size);
  const Case test = make_case(choices);
  g_constraint = &test.constraint;
  g_text.clear();
  auto grammar = compile(test.constraint);
  if (!grammar.ok()) {
    require(!grammar.error().message.empty(), "an error has no message");
    return 0;
  }
  auto masks = std::make_shared<TokenMasks>(make_pieces(), size_t{1} << 20);
  CompiledGrammar compiled{std::make_shared<const Grammar>(std::move(grammar).value()), masks, masks->new_grammar(),
                           size_t{256} << choices.up_to(12)};
  Generation generation(compiled, choices);
  generation.run();
  bool known = false;
  const std::string& text = generation.text();
  if (generation.whole()) {
    const bool again = accepts(compiled, text, &known);
    require(again || !known, "a fresh matcher rejects a complete text");
    if (test.constraint.kind == Constraint::Kind::json_schema && test.constraint.trigger.empty())
      require(nlohmann::json::accept(text), "a complete text is not JSON");
  }
  if (test.rules.empty()) return 0;
  if (generation.whole() && text.size() <= 64)
    require(Definition(test.rules, text).matches(test.rules[0]), "a complete text is not in the language");
  for (int i = 0; i < 3; ++i) {
    static const char* kParts[] = {"a", "b", "ab", "c", "aa", "\xC3\xA9", "-", "0"};
    std::string other = i == 0 ? text.substr(0, std::min<size_t>(48, text.size())) : "";
    for (uint32_t n = choices.up_to(9); n > 0; --n) other += kParts[choices.up_to(std::size(kParts) - 1)];
    g_text = other;
    const bool taken = accepts(compiled, other, &known);
    if (known)
      require(taken == Definition(test.rules, other).matches(test.rules[0]),
              "matcher and reference disagree about a text");
  }
  return 0;
}
