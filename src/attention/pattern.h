// AttentionPattern: decides which earlier keys a query sees. The stream is cut into blocks of block() tokens, counted
// from its first token. For a layer, a KV head and a block of queries, a pattern names the earlier blocks whose keys
// these queries see. Queries always see their own block, up to their own token. A pattern does not know the batch, so
// results depend on the stream alone, never on prefill chunks. Stateless and const. attention/block_sparse.h computes
// attention with it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "attention/block_marks.h"
#include "base/registry.h"
#include "base/result.h"

namespace millrace {

// The tokens whose queries a pattern applies to; other queries see every earlier key.
enum class PatternPhase : uint8_t { all, prompt, decode };

struct PatternPlace {
  int64_t layer = 0;
  int64_t head = 0;   // index of the KV head, whose query heads all see the same keys
  int64_t heads = 1;  // KV heads of the layer
};

class AttentionPattern {
 public:
  virtual ~AttentionPattern() = default;
  // Marks blocks before `query_block`; others are ignored.
  virtual void mark(const PatternPlace& at, int64_t query_block, BlockMarks& marks) const = 0;

  // Returns true if the pattern applies to sampled tokens (`answer` is true) or to the prompt's tokens (false).
  bool applies(bool answer) const { return phase_ == PatternPhase::all || (phase_ == PatternPhase::decode) == answer; }
  PatternPhase phase() const { return phase_; }
  int64_t block() const { return block_; }           // tokens
  const std::string& text() const { return text_; }  // NAME[:key=value,...], as given

 private:
  friend Result<std::shared_ptr<const AttentionPattern>> make_attention_pattern(std::string_view text);
  int64_t block_ = 64;
  PatternPhase phase_ = PatternPhase::all;
  std::string text_;
};

// Returns true if prompts and answers attend in different ways.
inline bool has_phase(const AttentionPattern* pattern) { return pattern && pattern->phase() != PatternPhase::all; }

// Null: the entry "window", which users cannot choose, because the model's layers determine it.
using AttentionPatternFactory = Result<std::unique_ptr<AttentionPattern>> (*)(const OptionValues& options);
const Registry<AttentionPatternFactory>& attention_patterns();

// `text` is NAME[:key=value,...]. Errors (user): unknown name or option, a pattern that cannot be chosen.
Result<std::shared_ptr<const AttentionPattern>> make_attention_pattern(std::string_view text);

// Errors: user (blocks that are not whole KV blocks, or too many).
Result<void> check_pattern_blocks(const AttentionPattern& pattern, int64_t context, int64_t block_tokens);

// Fraction of all pairs of a query and a key at or before it that the pattern keeps, on average over the heads, for a
// stream of `tokens` tokens.
double pattern_density(const AttentionPattern& pattern, int64_t layers, int64_t heads, int64_t tokens);

}  // namespace millrace
