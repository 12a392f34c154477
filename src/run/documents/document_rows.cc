#include "run/documents/document_rows.h"

#include <algorithm>

#include "models/npu/products.h"

namespace millrace {
namespace {

constexpr const char* kRowsAdvice = "ask for fewer tokens of documents (--document-tokens), or raise the budget";

}  // namespace

Result<std::unique_ptr<DocumentRows>> DocumentRows::create(const LanguageModel& model,
                                                           std::shared_ptr<ThreadPool> threads, ForwardLimits limits,
                                                           int64_t tokens, bool shares) {
  auto made = std::unique_ptr<DocumentRows>(new DocumentRows());
  const LanguageModel::Parts& parts = model.parts();
  limits.outputs = 1;
  KvLayout layout{
      .format = find_format("f16"), .block_tokens = KeptRows::kBlockTokens, .layers = parts.model->kv_layers()};
  MILLRACE_TRY_VOID(layout.check());
  const int64_t blocks = KeptRows::blocks(tokens);
  const ForwardBytes forward = ForwardContext::plan(parts.model->spec(), limits, threads->threads(), layout);
  for (const auto& [account, bytes] : {std::pair{"documents", kv_pool_bytes(layout, blocks, {})},
                                       {"activations", forward.activations},
                                       {"logits", forward.logits}}) {
    MILLRACE_TRY(auto hold, MemoryHold::take(parts.accounts, account, bytes, kRowsAdvice));
    made->memory_.push_back(std::move(hold));
  }
  if (limits.switches.npu) {
    MILLRACE_TRY(auto hold,
                 MemoryHold::take(parts.accounts, "NPU", NpuProducts::bytes(*parts.model, limits), kRowsAdvice));
    made->memory_.push_back(std::move(hold));
  }
  MILLRACE_TRY(made->runner_,
               ModelRunner::create(
                   *parts.model, parts.kernels,
                   {.threads = std::move(threads), .layout = std::move(layout), .blocks = blocks, .limits = limits}));
  made->kept_.emplace(made->runner_->kv(), shares);
  return made;
}

bool DocumentRows::hold(StreamRef stream, const ContextPart& part, int64_t& budget) {
  return kept_->hold(
      stream, part, budget, runner_->limits().tokens, [&](const RowsLease& lease, int64_t first, int64_t count) {
        runner_->start();
        runner_->begin(lease.blocks(), first, stream.own.adapters.empty() ? nullptr : &stream.own.adapters);
        for (int64_t i = first; i < first + count; ++i) runner_->add(lease.tokens()[static_cast<size_t>(i)], i);
        runner_->forward();
      });
}

int64_t DocumentRows::put(StreamRef stream, const ContextPart& part, int64_t count, ModelRunner& target) {
  const Sequence& s = stream.sequence;
  for (int64_t slot = s.computed, end = slot + count, run; slot < end; slot += run) {
    run = std::min(end - slot, target.limits().tokens);
    target.start();
    target.begin(s.kv.blocks, slot, nullptr, s.kv.state);
    for (int64_t i = slot; i < slot + run; ++i) target.add(0, i);
    target.put_keys({runner_->kv(), stream.own.rows->blocks(), slot - part.moved, part.stays ? 0 : part.moved});
  }
  return KeptRows::let_go(stream, part, count);
}

}  // namespace millrace
