#include "run/constraint_memory.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace {
namespace {

constexpr int64_t kMaxDefault = int64_t{64} << 20;
constexpr int64_t kMinBytes = int64_t{4} << 20;  // in addition to the vocabulary
constexpr int kCompilesAtOnce = 2;               // so a short one need not wait for a long one

// Upper bound: a node for each byte, and the memory for sorting.
int64_t vocabulary_bytes(const Tokenizer& tokenizer) {
  int64_t bytes = 0;
  for (TokenId token = 0; token < tokenizer.vocab_size(); ++token)
    bytes += static_cast<int64_t>(tokenizer.piece(token).size()) * 14 + 96;
  return bytes;
}

Result<CompiledGrammar> named(Result<CompiledGrammar> compiled) {
  if (compiled.ok() || compiled.error().message.starts_with("constraint: ")) return compiled;
  return Error{compiled.error().kind, "constraint: " + compiled.error().message};
}

}  // namespace

int64_t least_constraint_memory(const Tokenizer& tokenizer) { return vocabulary_bytes(tokenizer) + kMinBytes; }

int64_t default_constraint_memory(const Tokenizer* tokenizer, int64_t budget) {
  if (!tokenizer || budget <= 0) return 0;
  const int64_t least = least_constraint_memory(*tokenizer);
  return least > budget / 4 ? 0 : std::max(least, std::min(kMaxDefault, budget / 16));
}

ConstraintMemory::ConstraintMemory(const Tokenizer& tokenizer, std::shared_ptr<MemoryAccounts> accounts, int64_t bytes,
                                   int64_t streams)
    : tokenizer_(tokenizer), accounts_(std::move(accounts)), bytes_(bytes), streams_(std::max<int64_t>(1, streams)) {}

Result<void> ConstraintMemory::open() {
  GrammarBounds bounds;
  if (accounts_ && accounts_->budget() > 0) {
    const int64_t vocabulary = vocabulary_bytes(tokenizer_);
    if (bytes_ < vocabulary + kMinBytes)
      return Error::unsupported(
          fmt::format("constraint: of the memory budget of {}, {} are kept for structured output, and this vocabulary "
                      "needs {}; raise the budget, "
                      "lower the context or the KV tokens, or set --constraint-memory",
                      format_bytes(accounts_->budget()), format_bytes(bytes_), format_bytes(vocabulary + kMinBytes)));
    const int64_t rest = bytes_ - vocabulary, compile = rest / 4 / kCompilesAtOnce;
    bounds.mask_bytes = bounds.grammar_bytes = static_cast<size_t>(rest / 8);
    bounds.used_bytes = static_cast<size_t>(rest / 8 + rest / 4);
    bounds.table_bytes = static_cast<size_t>(rest / 8 / streams_);  // another one is used while copying
    bounds.largest_grammar = static_cast<size_t>(rest / 8);
    bounds.compiles_at_once = kCompilesAtOnce;
    bounds.compile.bytes = std::min(bounds.compile.bytes, compile);
    bounds.limits.source_bytes = std::min(bounds.limits.source_bytes, rest / 16);
  }
  cache_ = std::make_unique<GrammarCache>([this] { return constrained_pieces(tokenizer_); }, bounds);
  return {};
}

Result<CompiledGrammar> ConstraintMemory::get(const Constraint& constraint, const CompileOrder& order) {
  {
    std::lock_guard lock(mutex_);
    if (!cache_) MILLRACE_TRY_VOID(open());
  }
  return named(cache_->get(constraint, order));
}

std::optional<Result<CompiledGrammar>> ConstraintMemory::find(const Constraint& constraint) {
  {
    std::lock_guard lock(mutex_);
    if (!cache_) return std::nullopt;
  }
  auto found = cache_->find(constraint);
  return found ? std::optional(named(std::move(*found))) : std::nullopt;
}

}  // namespace millrace
