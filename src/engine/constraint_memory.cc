#include "engine/constraint_memory.h"

#include <fmt/format.h>

namespace millrace {
namespace {

constexpr const char* kAccount = "constraints";
constexpr int64_t kDefaultBytes = int64_t{48} << 20;  // of what is left
constexpr int64_t kLeastBytes = int64_t{4} << 20;     // beside the vocabulary
constexpr int64_t kStateBytes = 1024;                 // of an automaton, 256 classes of bytes
constexpr int64_t kNfaStateBytes = 256;

// At most: a node for each byte, and what sorting takes.
int64_t vocabulary_bytes(const Tokenizer& tokenizer) {
  int64_t bytes = 0;
  for (TokenId token = 0; token < tokenizer.vocab_size(); ++token) bytes += static_cast<int64_t>(tokenizer.piece(token).size()) * 14 + 96;
  return bytes;
}

}  // namespace

ConstraintMemory::ConstraintMemory(const Tokenizer& tokenizer, std::shared_ptr<MemoryAccounts> accounts, int64_t bytes, int64_t streams)
    : tokenizer_(tokenizer), accounts_(std::move(accounts)), bytes_(bytes), streams_(std::max<int64_t>(1, streams)) {}

Result<void> ConstraintMemory::open() {
  GrammarBounds bounds;
  if (accounts_ && accounts_->budget() > 0) {
    const int64_t vocabulary = vocabulary_bytes(tokenizer_);
    const int64_t bytes = bytes_ > 0 ? bytes_ : std::max(kDefaultBytes, vocabulary + kLeastBytes);
    const int64_t rest = bytes - vocabulary;
    if (rest < kLeastBytes)
      return Error::resource(fmt::format("constraint: {} for constraints are too few, {} are needed for this vocabulary", format_bytes(bytes), format_bytes(vocabulary + kLeastBytes)));
    if (bytes_ == 0) {
      auto taken = MemoryHold::take(accounts_, kAccount, bytes, "keep memory for constraints with --constraint-memory, or lower --kv-tokens");
      if (!taken.ok()) return Error::resource("constraint: " + taken.error().message);
      hold_ = std::move(*taken);
    }
    bounds.mask_bytes = bounds.grammar_bytes = static_cast<size_t>(rest / 8);
    bounds.table_bytes = static_cast<size_t>(rest / 8 / streams_);
    bounds.largest_grammar = static_cast<size_t>(rest / 4 / streams_);
    bounds.one_at_a_time = true;
    bounds.limits.total_states = std::min(bounds.limits.total_states, rest / 4 / (2 * kStateBytes));
    bounds.limits.dfa_states = std::min(bounds.limits.dfa_states, bounds.limits.total_states);
    bounds.limits.nfa_states = std::min(bounds.limits.nfa_states, rest / 4 / (2 * kNfaStateBytes));
    bounds.limits.source_bytes = std::min(bounds.limits.source_bytes, rest / 16);
  }
  cache_ = std::make_unique<GrammarCache>([this] { return constrained_pieces(tokenizer_); }, bounds);
  return {};
}

Result<CompiledGrammar> ConstraintMemory::get(const Constraint& constraint) {
  {
    std::lock_guard lock(mutex_);
    if (!cache_) MILLRACE_TRY_VOID(open());
  }
  auto compiled = cache_->get(constraint);
  if (compiled.ok() || compiled.error().message.starts_with("constraint: ")) return compiled;
  return Error{compiled.error().kind, "constraint: " + compiled.error().message};
}

}  // namespace millrace
