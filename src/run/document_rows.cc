#include "run/document_rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "run/own_stream.h"

namespace millrace {
namespace {

constexpr int64_t kRowsBlock = 16;  // tokens of a block
constexpr const char* kRowsAdvice = "ask for fewer tokens of documents (--document-tokens), or raise the budget";

int64_t row_blocks(int64_t tokens) { return (tokens + kRowsBlock - 1) / kRowsBlock; }

}  // namespace

Result<std::unique_ptr<DocumentRows>> DocumentRows::create(const LanguageModel& model,
                                                           std::shared_ptr<ThreadPool> threads, ForwardLimits limits,
                                                           int64_t tokens) {
  auto made = std::unique_ptr<DocumentRows>(new DocumentRows());
  const LanguageModel::Parts& parts = model.parts();
  limits.outputs = 1;
  KvLayout layout{.format = find_format("f16"), .block_tokens = kRowsBlock, .layers = parts.model->kv_layers()};
  MILLRACE_TRY_VOID(layout.check());
  const int64_t blocks = row_blocks(tokens);
  const ForwardBytes forward = ForwardContext::plan(parts.model->spec(), limits, threads->threads(), layout);
  for (const auto& [account, bytes] : {std::pair{"documents", kv_pool_bytes(layout, blocks, {})},
                                       {"activations", forward.activations},
                                       {"logits", forward.logits}}) {
    MILLRACE_TRY(auto hold, MemoryHold::take(parts.accounts, account, bytes, kRowsAdvice));
    made->memory_.push_back(std::move(hold));
  }
  MILLRACE_TRY(made->runner_,
               ModelRunner::create(
                   *parts.model, parts.kernels,
                   {.threads = std::move(threads), .layout = std::move(layout), .blocks = blocks, .limits = limits}));
  made->index_ = std::make_unique<PrefixIndex>(made->runner_->kv(), 0);
  return made;
}

Result<void> DocumentRows::check(const ContextPlan& plan, const std::string& format) const {
  const int64_t total = runner_->kv().total_blocks();
  for (const ContextPart& part : plan.parts) {
    const int64_t tokens = part.end - part.moved;
    if (part.fresh_share > 0)
      return Error::unsupported(
          fmt::format("context cacheblend: computes tokens in the middle of a document again, whose rows KV format {} "
                      "encodes with others; use epic, or a format of rows such as q8_0",
                      format));
    if (tokens_before(part) < 0)
      return Error::unsupported(
          "context: with a KV format that encodes whole blocks a document sees the prompt's first tokens and itself; "
          "choose another context, or a format of rows");
    if (row_blocks(tokens) > total)
      return Error::resource(fmt::format(
          "context: a document of {} tokens, with those that it sees, does not fit in the {} that are kept; "
          "start with more, --document-tokens N",
          tokens, total * kRowsBlock));
  }
  return {};
}

Result<void> DocumentRows::check_blocks() const {
  const KvPool& kv = runner_->kv();
  MILLRACE_TRY_VOID(kv.check());
  int64_t references = 0;
  for (BlockId block = 0; block < kv.ids(); ++block) references += kv.references(block);
  if (references == index_->size() + leased_) return {};
  return Error::internal(fmt::format("documents: {} references to blocks, {} are kept and {} leased", references,
                                     index_->size(), leased_));
}

RowsLease::RowsLease(DocumentRows& owner, const LiveStream& stream, const ContextPart& part)
    : owner_(owner),
      begin_(part.begin),
      tokens_(own_stream(stream.sequence, part, kRowsBlock)),
      count_(part.end - part.moved),
      scope_(stream.sequence.prefix.scope),
      shares_(stream.sequence.request.cache_prompt),
      keep_seconds_(stream.sequence.request.keep_seconds) {}

RowsLease::~RowsLease() {
  for (const BlockId block : blocks_) owner_.runner_->kv().release(block);
  owner_.leased_ -= std::ssize(blocks_);
}

bool RowsLease::add(Result<BlockId> block) {
  if (!block.ok()) return false;
  blocks_.push_back(*block);
  ++owner_.leased_;
  return true;
}

// All blocks or, if running streams hold too many, none: null.
std::shared_ptr<RowsLease> DocumentRows::take(const LiveStream& stream, const ContextPart& part) {
  auto lease = std::make_shared<RowsLease>(*this, stream, part);
  if (lease->shares_)
    for (const BlockId block : index_->match(lease->tokens_, lease->scope_)) lease->add(block);
  lease->computed_ = lease->found_ = std::min(std::ssize(lease->blocks_) * kRowsBlock, lease->count_);
  while (std::ssize(lease->blocks_) < row_blocks(lease->count_))
    if (!lease->add(runner_->kv().allocate()) && index_->evict(1) == 0) return nullptr;
  return lease;
}

// What is computed, in whole blocks.
void DocumentRows::keep(const RowsLease& lease) {
  if (!lease.shares_) return;
  const int64_t blocks = lease.complete() ? row_blocks(lease.count_) : lease.computed_ / kRowsBlock;
  index_->insert(std::span(lease.tokens_).first(static_cast<size_t>(blocks * kRowsBlock)), lease.blocks_, lease.scope_,
                 lease.keep_seconds_);
}

void DocumentRows::compute(RowsLease& lease, const LoraMix* mix, int64_t count) {
  runner_->start();
  runner_->begin(lease.blocks_, lease.computed_, mix);
  for (int64_t i = lease.computed_; i < lease.computed_ + count; ++i)
    runner_->add(lease.tokens_[static_cast<size_t>(i)], i);
  runner_->forward();
  lease.computed_ += count;
}

bool DocumentRows::hold(LiveStream& stream, const ContextPart& part, int64_t& budget) {
  if (stream.rows && stream.rows->begin_ != part.begin) stream.rows.reset();
  if (!stream.rows) stream.rows = take(stream, part);
  if (!stream.rows) return false;
  RowsLease& lease = *stream.rows;
  if (lease.complete()) return true;
  while (!lease.complete() && budget > 0) {
    const int64_t count = std::min({lease.count_ - lease.computed_, budget, runner_->limits().tokens});
    compute(lease, stream.adapters.empty() ? nullptr : &stream.adapters, count);
    budget -= count;
  }
  keep(lease);
  return lease.complete();
}

int64_t DocumentRows::put(LiveStream& stream, const ContextPart& part, int64_t count, ModelRunner& target) {
  const Sequence& s = stream.sequence;
  const RowsLease& lease = *stream.rows;
  const int64_t first = s.computed, end = first + count;
  for (int64_t slot = first, run; slot < end; slot += run) {
    run = std::min(end - slot, target.limits().tokens);
    target.start();
    target.begin(s.kv.blocks, slot, nullptr, s.kv.state);
    for (int64_t i = slot; i < slot + run; ++i) target.add(0, i);
    target.put_keys({runner_->kv(), lease.blocks_, slot - part.moved, part.stays ? 0 : part.moved});
  }
  const int64_t known = std::clamp<int64_t>(lease.found_ - (first - part.moved), 0, count);
  if (end == part.end) stream.rows.reset();
  return known;
}

}  // namespace millrace
