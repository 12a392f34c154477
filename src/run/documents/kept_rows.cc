#include "run/documents/kept_rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "run/documents/own_stream.h"

namespace millrace {

Result<void> KeptRows::check(const ContextPlan& plan) const {
  for (const ContextPart& part : plan.parts) {
    const int64_t tokens = part.end - part.moved;
    if (blocks(tokens) > pool_.total_blocks())
      return Error::resource(fmt::format(
          "context: a document of {} tokens, with those that it sees, does not fit in the {} that are kept; "
          "start with more, --document-tokens N",
          tokens, pool_.total_blocks() * kBlockTokens));
  }
  return {};
}

Result<void> KeptRows::check_blocks() const {
  MILLRACE_TRY_VOID(pool_.check());
  int64_t references = 0;
  for (BlockId block = 0; block < pool_.ids(); ++block) references += pool_.references(block);
  if (references == index_.size() + leased_) return {};
  return Error::internal(
      fmt::format("documents: {} references to blocks, {} are kept and {} leased", references, index_.size(), leased_));
}

RowsLease::RowsLease(KeptRows& owner, StreamRef stream, const ContextPart& part)
    : owner_(owner),
      begin_(part.begin),
      tokens_(own_stream(stream.sequence, part, KeptRows::kBlockTokens)),
      count_(part.end - part.moved),
      scope_(stream.sequence.prefix.scope),
      shares_(owner.shares_ && stream.sequence.request.cache_prompt),
      keep_seconds_(stream.sequence.request.keep_seconds) {}

RowsLease::~RowsLease() {
  for (const BlockId block : blocks_) owner_.pool_.release(block);
  owner_.leased_ -= std::ssize(blocks_);
}

bool RowsLease::add(Result<BlockId> block) {
  if (!block.ok()) return false;
  blocks_.push_back(*block);
  ++owner_.leased_;
  return true;
}

// All blocks or, if running streams hold too many, none: null.
std::shared_ptr<RowsLease> KeptRows::take(StreamRef stream, const ContextPart& part) {
  auto lease = std::make_shared<RowsLease>(*this, stream, part);
  if (lease->shares_)
    for (const BlockId block : index_.match(lease->tokens_, lease->scope_)) lease->add(block);
  lease->computed_ = lease->found_ = std::min(std::ssize(lease->blocks_) * kBlockTokens, lease->count_);
  while (std::ssize(lease->blocks_) < blocks(lease->count_))
    if (!lease->add(pool_.allocate()) && index_.evict(1) == 0) return nullptr;
  return lease;
}

// What is computed, in whole blocks.
void KeptRows::keep(const RowsLease& lease) {
  if (!lease.shares_) return;
  const int64_t whole = lease.complete() ? blocks(lease.count_) : lease.computed_ / kBlockTokens;
  index_.insert(std::span(lease.tokens_).first(static_cast<size_t>(whole * kBlockTokens)), lease.blocks_, lease.scope_,
                lease.keep_seconds_);
}

bool KeptRows::hold(StreamRef stream, const ContextPart& part, int64_t& budget, int64_t most, const Compute& compute) {
  if (stream.own.rows && stream.own.rows->begin_ != part.begin) stream.own.rows.reset();
  if (!stream.own.rows) stream.own.rows = take(stream, part);
  if (!stream.own.rows) return false;
  RowsLease& lease = *stream.own.rows;
  if (lease.complete()) return true;
  while (!lease.complete() && budget > 0) {
    const int64_t count = std::min({lease.count_ - lease.computed_, budget, most});
    compute(lease, lease.computed_, count);
    lease.computed_ += count;
    budget -= count;
  }
  keep(lease);
  return lease.complete();
}

int64_t KeptRows::let_go(StreamRef stream, const ContextPart& part, int64_t count) {
  const int64_t first = stream.sequence.computed;
  const int64_t found = std::clamp<int64_t>(stream.own.rows->found_ - (first - part.moved), 0, count);
  if (first + count == part.end) stream.own.rows.reset();
  return found;
}

}  // namespace millrace
