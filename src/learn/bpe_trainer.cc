#include "learn/bpe_trainer.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <unordered_set>

namespace millrace {
namespace {

constexpr std::string_view kSpace = "\u2581";

size_t utf8_length(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xf0) return 4;
  if (lead >= 0xe0) return 3;
  return lead >= 0xc0 ? 2 : 1;
}

// A character ends early if a continuation byte is missing: broken text never swallows the next character.
std::vector<std::string> characters(std::string_view s) {
  std::vector<std::string> out;
  for (size_t i = 0; i < s.size();) {
    const size_t want = std::min(utf8_length(static_cast<unsigned char>(s[i])), s.size() - i);
    size_t n = 1;
    while (n < want && (static_cast<unsigned char>(s[i + n]) & 0xc0) == 0x80) ++n;
    out.emplace_back(s.substr(i, n));
    i += n;
  }
  return out;
}

enum class Kind { letter, digit, sign };
Kind kind_of(const std::string& c) {
  const auto lead = static_cast<unsigned char>(c[0]);
  if (std::isalpha(lead)) return Kind::letter;
  if (std::isdigit(lead)) return Kind::digit;
  return lead < 0x80 ? Kind::sign : Kind::letter;
}

// Runs within which merges are learned: letters; other characters; each digit alone; a leading U+2581 stays with its
// run.
void count_runs(const std::string& text, std::unordered_map<std::string, int64_t>& runs) {
  std::string run;
  bool has_kind = false;
  Kind run_kind = Kind::letter;
  auto flush = [&] {
    if (!run.empty()) ++runs[run];
    run.clear();
    has_kind = false;
  };
  run = kSpace;  // the prefix
  for (const std::string& c : characters(text)) {
    if (c == "\n") {
      flush();
    } else if (c == " ") {
      flush();
      run = kSpace;
    } else {
      const Kind kind = kind_of(c);
      if (has_kind && (kind != run_kind || kind == Kind::digit)) flush();
      run += c;
      run_kind = kind;
      has_kind = true;
    }
  }
  flush();
}

using Pair = std::pair<int, int>;  // indices of symbols
struct PairHash {
  size_t operator()(const Pair& p) const {
    return (static_cast<size_t>(p.first) << 32) ^ (static_cast<size_t>(p.second) * 0x9e3779b97f4a7c15ull);
  }
};

// Pair counts over the distinct runs, updated as runs are merged.
class MergeLearner {
 public:
  explicit MergeLearner(const std::unordered_map<std::string, int64_t>& runs) {
    std::vector<std::pair<std::string, int64_t>> ordered(runs.begin(), runs.end());
    std::sort(ordered.begin(), ordered.end());
    for (const auto& [run, count] : ordered) {
      std::vector<int> word;
      for (const std::string& c : characters(run)) {
        word.push_back(symbol(c));
        character_counts_[c] += count;
      }
      words_.push_back(std::move(word));
      counts_.push_back(count);
      add(words_.size() - 1, +1);
    }
  }

  const std::map<std::string, int64_t>& character_counts() const { return character_counts_; }

  // Merges the best pair everywhere and returns its text; empty if no pair remains.
  std::string next() {
    Pair best{-1, -1};
    int64_t best_count = 0;
    for (const auto& [pair, count] : pair_counts_) {
      if (count < best_count || count <= 0) continue;
      if (count > best_count || text(pair) < text(best)) {
        best = pair;
        best_count = count;
      }
    }
    if (best_count < 2) return {};
    const std::string merged = text(best);
    const int id = symbol(merged);
    const std::unordered_set<size_t> where = std::move(where_[best]);
    where_.erase(best);
    for (size_t w : where) {
      add(w, -1);
      std::vector<int>& word = words_[w];
      std::vector<int> shorter;
      for (size_t i = 0; i < word.size(); ++i) {
        const bool hit = i + 1 < word.size() && word[i] == best.first && word[i + 1] == best.second;
        shorter.push_back(hit ? id : word[i]);
        if (hit) ++i;
      }
      word = std::move(shorter);
      add(w, +1);
    }
    pair_counts_.erase(best);
    return merged;
  }

 private:
  int symbol(const std::string& s) {
    auto [it, fresh] = symbols_.emplace(s, static_cast<int>(texts_.size()));
    if (fresh) texts_.push_back(s);
    return it->second;
  }
  std::string text(const Pair& p) const { return p.first < 0 ? std::string() : texts_[p.first] + texts_[p.second]; }
  void add(size_t w, int sign) {
    const std::vector<int>& word = words_[w];
    for (size_t i = 0; i + 1 < word.size(); ++i) {
      const Pair pair{word[i], word[i + 1]};
      pair_counts_[pair] += sign * counts_[w];
      if (sign > 0) where_[pair].insert(w);
    }
  }

  std::vector<std::vector<int>> words_;
  std::vector<int64_t> counts_;
  std::unordered_map<std::string, int> symbols_;
  std::vector<std::string> texts_;
  std::map<std::string, int64_t> character_counts_;
  std::unordered_map<Pair, int64_t, PairHash> pair_counts_;
  std::unordered_map<Pair, std::unordered_set<size_t>, PairHash> where_;
};

TokenizerSpec specials_and_bytes() {
  TokenizerSpec spec;
  spec.kind = "spm";
  spec.tokens = {"<unk>", "<s>", "</s>"};
  spec.types = {TokenType::unknown, TokenType::control, TokenType::control};
  for (int b = 0; b < 256; ++b) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", b);
    spec.tokens.emplace_back(name);
    spec.types.push_back(TokenType::byte);
  }
  spec.scores.assign(spec.tokens.size(), 0.0f);
  spec.bos = kBosId;
  spec.eos = kEosId;
  spec.unk = kUnkId;
  spec.eog = {kEosId};
  spec.add_bos = true;
  spec.add_eos = false;
  spec.add_space_prefix = true;
  return spec;
}

void score_pieces(TokenizerSpec& spec) {
  for (size_t id = kFirstPieceId; id < spec.tokens.size(); ++id) {
    spec.scores.push_back(-static_cast<float>(id - kFirstPieceId));
    spec.types.push_back(TokenType::normal);
  }
}

}  // namespace

Result<TokenizerSpec> train_bpe(const std::vector<std::string>& texts, int vocab_size) {
  std::unordered_map<std::string, int64_t> runs;
  for (const std::string& text : texts) count_runs(text, runs);
  MergeLearner learner(runs);
  TokenizerSpec spec = specials_and_bytes();
  // A character with fewer than three occurrences is better represented as bytes; printable ASCII is always included.
  std::vector<std::string> alphabet;
  std::unordered_set<std::string> single;
  for (char c = '!'; c <= '~'; ++c) {
    alphabet.emplace_back(1, c);
    single.insert(alphabet.back());
  }
  for (const auto& [c, count] : learner.character_counts()) {
    if (single.count(c) > 0) continue;
    if (count < 3 && static_cast<unsigned char>(c[0]) >= 0x80) continue;
    alphabet.push_back(c);
    single.insert(c);
  }
  const int64_t merges = vocab_size - kFirstPieceId - static_cast<int64_t>(alphabet.size());
  if (merges < 0) {
    return Error::user(
        "the vocabulary is too small for 259 special and byte tokens and the characters of the text; "
        "increase it: " +
        std::to_string(vocab_size));
  }
  std::unordered_set<std::string> known;
  for (int64_t i = 0; i < merges;) {
    std::string piece = learner.next();
    if (piece.empty()) {
      return Error::user("the text is too small for the vocabulary; merges found of merges needed: " +
                         std::to_string(i) + " of " + std::to_string(merges));
    }
    if (!known.insert(piece).second) continue;  // two ways to form the same piece: one token
    bool rare = false;
    for (const std::string& c : characters(piece)) rare |= single.count(c) == 0;
    if (rare) continue;
    spec.tokens.push_back(std::move(piece));
    ++i;
  }
  spec.tokens.insert(spec.tokens.end(), alphabet.begin(), alphabet.end());
  score_pieces(spec);
  return spec;
}

TokenizerSpec vocabulary_of(const std::vector<std::string>& pieces) {
  TokenizerSpec spec = specials_and_bytes();
  spec.tokens.insert(spec.tokens.end(), pieces.begin(), pieces.end());
  score_pieces(spec);
  return spec;
}

BpeEncoder::BpeEncoder(const TokenizerSpec& spec) : spec_(spec) {
  for (size_t id = 0; id < spec_.tokens.size(); ++id)
    if (spec_.types[id] == TokenType::normal) ids_.emplace(spec_.tokens[id], static_cast<TokenId>(id));
}

std::string BpeEncoder::escape(std::string_view text) const {
  std::string out;
  if (spec_.add_space_prefix && !text.empty()) out += kSpace;
  for (char c : text) {
    if (c == ' ') {
      out += kSpace;
    } else {
      out += c;
    }
  }
  return out;
}

// Merges the best-scored pair first, the leftmost of equals; pieces that are not tokens fall back to bytes.
std::vector<TokenId> BpeEncoder::merge(std::string_view escaped) const {
  std::vector<std::string> symbols = characters(escaped);
  while (symbols.size() > 1) {
    size_t best = symbols.size();
    float best_score = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      auto found = ids_.find(symbols[i] + symbols[i + 1]);
      if (found == ids_.end()) continue;
      const float score = spec_.scores[static_cast<size_t>(found->second)];
      if (best == symbols.size() || score > best_score) {
        best = i;
        best_score = score;
      }
    }
    if (best == symbols.size()) break;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  std::vector<TokenId> ids;
  for (const std::string& symbol : symbols) {
    auto found = ids_.find(symbol);
    if (found != ids_.end()) {
      ids.push_back(found->second);
    } else {
      for (unsigned char byte : symbol) ids.push_back(kFirstByteId + byte);
    }
  }
  return ids;
}

std::vector<TokenId> BpeEncoder::encode(std::string_view text) {
  const std::string escaped = escape(text);
  std::vector<TokenId> ids;
  for (size_t begin = 0; begin < escaped.size();) {
    size_t end = escaped.find(kSpace, begin + 1);
    if (end == std::string::npos) end = escaped.size();
    std::string word = escaped.substr(begin, end - begin);
    auto [it, fresh] = cache_.try_emplace(std::move(word));
    if (fresh) it->second = merge(it->first);
    ids.insert(ids.end(), it->second.begin(), it->second.end());
    begin = end;
  }
  return ids;
}

std::vector<TokenId> BpeEncoder::encode_whole(std::string_view text) const { return merge(escape(text)); }

std::string BpeEncoder::decode(const std::vector<TokenId>& ids) const {
  std::string out;
  for (TokenId id : ids) {
    if (id < kFirstByteId || id >= static_cast<TokenId>(spec_.tokens.size())) continue;
    if (id < kFirstPieceId) {
      out += static_cast<char>(id - kFirstByteId);
      continue;
    }
    for (const std::string& c : characters(spec_.tokens[static_cast<size_t>(id)])) out += c == kSpace ? " " : c;
  }
  if (spec_.add_space_prefix && !out.empty() && out[0] == ' ') out.erase(0, 1);
  return out;
}

}  // namespace millrace
