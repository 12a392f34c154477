#include "evaluate/scorer.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/pattern_layers.h"
#include "kv/kv_formats.h"
#include "models/background_packer.h"
#include "models/drop_tokens.h"
#include "run/compatibility/collect.h"
#include "run/plan/stored_pattern.h"
#include "run/plan/window_blocks.h"

namespace millrace {
namespace {

constexpr int64_t kScorerBlockTokens = 16;
constexpr int64_t kLogitBytes = int64_t{64} << 20;  // per batch: large vocabularies score fewer rows at once
constexpr int64_t kMaxScorerContext = int64_t{1} << 24;

}  // namespace

std::vector<ScoreWindow> chunk_windows(int64_t tokens, int64_t context) {
  std::vector<ScoreWindow> out;
  if (context < 2) return out;
  for (int64_t begin = 0; context <= tokens - begin; begin += context) out.push_back({begin, context, context / 2 + 1});
  return out;
}

Result<void> check_text_length(int64_t tokens, int64_t context) {
  if (tokens >= context) return {};
  return Error::user(fmt::format(
      "text: has {} tokens, fewer than a window of {}; lower the context or give a longer text", tokens, context));
}

std::vector<ScoreWindow> strided_windows(int64_t tokens, int64_t context, int64_t stride) {
  std::vector<ScoreWindow> out;
  if (context < 2 || stride < 1) return out;
  const int64_t scored = std::min(stride, context - 1);
  for (int64_t begin = 0; context <= tokens - begin; begin += stride) out.push_back({begin, context, context - scored});
  return out;
}

std::vector<ScoreWindow> document_windows(int64_t tokens, int64_t context) {
  std::vector<ScoreWindow> out;
  if (context < 2 || tokens < 2) return out;
  int64_t scored = 1;  // tokens [0, scored) are done; the first one has no predecessor
  for (int64_t begin = 0; scored < tokens; begin += std::max<int64_t>(1, context / 2)) {
    const int64_t end = std::min(tokens, begin + context);
    out.push_back({begin, end - begin, scored - begin});
    scored = end;
  }
  return out;
}

namespace {

// Null: none. Errors: user.
Result<std::shared_ptr<const EvictionRule>> scorer_rule(const ScorerOptions& options) {
  MILLRACE_TRY(const auto given, make_eviction_rule(options.evictor));
  if (!given) return given;
  auto rule = std::make_shared<EvictionRule>(*given);
  rule->whole_prompt = false;  // a text to score is all prompt
  return std::shared_ptr<const EvictionRule>(std::move(rule));
}

}  // namespace

// Where the next batch begins.
struct Scorer::Cursor {
  size_t window = 0;
  int64_t position = 0;  // within the window
};

Result<std::unique_ptr<Scorer>> Scorer::create(std::shared_ptr<const LanguageModel> model,
                                               const ScorerOptions& options) {
  if (options.context < 2 || options.context > kMaxScorerContext)
    return Error::user(fmt::format("context: must be 2 to {} tokens, is {}", kMaxScorerContext, options.context));
  MILLRACE_TRY(const auto rule, scorer_rule(options));
  const bool endless = rule && rule->moves_keys() && rule->most_stored() <= model->parts().model->context();
  if (options.context > model->parts().model->context() && !endless)
    return Error::user(fmt::format("context: the model was loaded for {} tokens, {} requested",
                                   model->parts().model->context(), options.context));
  if (options.batch_tokens < 1 || options.batch_tokens > kMaxScorerContext)
    return Error::user(fmt::format("batch tokens: must be 1 to {}, is {}", kMaxScorerContext, options.batch_tokens));
  const auto& parts = model->parts();
  MILLRACE_TRY(KvFormats formats, find_kv_formats(options.kv_format, parts.kernels));
  if (options.kv_codec) formats.codec = options.kv_codec;
  if (!formats.keys && !find_format(options.kv_format))
    return Error::user(fmt::format("KV format: unknown name {}; try f32, f16, bf16 or q8_0", options.kv_format));
  if (!formats.keys)
    return Error::user(
        fmt::format("KV format: no attention kernel supports {}; try f32, f16, bf16 or q8_0", options.kv_format));

  auto scorer = std::unique_ptr<Scorer>(new Scorer());
  auto threads = options.pool;
  if (!threads) threads = parts.threads->get(options.threads);
  scorer->longest_ = options.context;
  KvLayout layout = formats.layout(kScorerBlockTokens, parts.model->kv_layers());
  MILLRACE_TRY(const ForwardSwitches switches,
               make_forward_switches(with_stored_patterns(*parts.files, options.kernels)));
  MILLRACE_TRY_VOID(
      resolve_pass(parts.model->spec(), formats, options.kv_format, switches, rule.get(), options.context));
  if (rule) MILLRACE_TRY_VOID(check_budgets(*rule, parts.model->spec()));
  MILLRACE_TRY_VOID(add_pattern_layers(layout, switches.attention.pattern, options.context));
  scorer->rule_ = rule;
  // Texts are short: layers with a window have blocks of their own where they must, and keep them all.
  MILLRACE_TRY_VOID(divide_by_budgets(layout, rule.get()));
  if (!layout.divided() && (rule || formats.window_keys)) split_all_windows(layout, options.context, options.context);
  scorer->tables_ = layout.tables();
  MILLRACE_TRY_VOID(formats.set_window_formats(layout));
  // One batch contains parts of at most this many windows: the tail of one, whole ones, the head of another.
  scorer->slots_ = scorer->rule_ ? 1 : options.batch_tokens / options.context + 2;
  const auto blocks_for = [&](int64_t count) { return (count + layout.block_tokens - 1) / layout.block_tokens; };
  const int64_t blocks = scorer->slots_ * blocks_demand(rule.get(), options.context, options.context, scorer->tables_,
                                                        layout.block_tokens);
  const int64_t most = most_demand(rule.get(), options.context, options.context, scorer->tables_);
  const int64_t vocab = std::max<int64_t>(1, parts.model->spec().vocab);
  const int64_t tokens = std::min(options.batch_tokens, scorer->slots_ * options.context);
  const ForwardLimits limits{tokens, std::clamp<int64_t>(kLogitBytes / 4 / vocab, 1, tokens),
                             blocks_for(layout.windows.empty() ? most : options.context) * layout.block_tokens,
                             switches};
  MILLRACE_TRY(scorer->runner_,
               ModelRunner::create_charged(*parts.model, parts.kernels,
                                           {.threads = std::move(threads),
                                            .layout = std::move(layout),
                                            .blocks = blocks,
                                            .places = {.streams = scorer->slots_ - 1, .evicts = true},
                                            .limits = limits,
                                            .streams = scorer->slots_},
                                           parts.accounts, "lower the context or the batch, or raise the budget"));
  if (scorer->rule_) scorer->observer_ = std::make_unique<EvictionObserver>(*scorer->runner_);
  MILLRACE_TRY_VOID(scorer->take_blocks());
  if (BackgroundPacker* packing = parts.model->packing()) MILLRACE_TRY_VOID(packing->finish());
  scorer->model_ = std::move(model);
  return scorer;
}

// Whole groups, or of one pool what each layer needs.
Result<void> Scorer::take_blocks() {
  KvPool& kv = runner_->kv();
  for (int64_t g = 0; g < kv.groups(); ++g) {
    KvPool& group = kv.group(g);
    const int64_t needed = kv.blocks_for(layer_demand(rule_.get(), longest_, longest_, g, tables_));
    for (auto& all = blocks_.emplace_back(); kv.divided() ? std::ssize(all) < needed : group.free_blocks() > 0;) {
      MILLRACE_TRY(BlockId block, group.allocate());
      all.push_back(block);
    }
  }
  return {};
}

// The window that is stored at `slot` goes on at `position`.
void Scorer::begin(int64_t slot, int64_t position) {
  const auto own = [&](size_t group) {
    const size_t each = blocks_[group].size() / static_cast<size_t>(slots_);
    return std::span(blocks_[group]).subspan(static_cast<size_t>(slot) * each, each);
  };
  runner_->begin(own(0), position - (eviction_ ? eviction_->evicted() : 0), nullptr, static_cast<StateId>(slot));
  runner_->exit_by(runner_->limits().switches.exit.get());
  for (size_t g = 1; g < blocks_.size(); ++g) {
    const auto group = static_cast<int64_t>(g);
    runner_->begin_group(group, own(g), position - (tables_ > 1 ? eviction_->evicted(group) : 0));
  }
}

// Adds windows in order until the batch is full of tokens, of rows or of windows, so rows are produced in text order.
void Scorer::fill_batch(std::span<const TokenId> tokens, std::span<const ScoreWindow> windows, TokenId window_start,
                        Cursor& cursor) {
  ModelRunner& runner = *runner_;
  const ForwardLimits& limits = runner.limits();
  runner.start();
  rows_.clear();
  // Short windows: no two in a batch may have the same slot.
  const size_t end_window = std::min(windows.size(), cursor.window + static_cast<size_t>(slots_));
  while (cursor.window < end_window) {
    const ScoreWindow& window = windows[cursor.window];
    const auto scored = [&] { return cursor.position + 1 >= window.first_scored; };
    const auto fits = [&] {
      return runner.tokens() < limits.tokens && !(scored() && runner.outputs() == limits.outputs);
    };
    if (!fits()) return;
    const int64_t slot = static_cast<int64_t>(cursor.window) % slots_;
    if (rule_ && cursor.position == 0)
      eviction_ =
          std::make_unique<TokenEviction>(rule_, window.count, window.count, runner_->kv().layout().heads(), tables_);
    const int64_t end = std::min(window.count - 1, eviction_ ? eviction_->next() : window.count);
    begin(slot, cursor.position);
    for (; cursor.position < end && fits(); ++cursor.position) {
      const auto at = static_cast<size_t>(window.begin + cursor.position);
      if (scored()) rows_.push_back({tokens[at + 1], nullptr});
      runner.add(cursor.position == 0 && window_start >= 0 ? window_start : tokens[at],
                 eviction_ ? eviction_->position(cursor.position) : cursor.position, scored());
    }
    if (cursor.position < window.count - 1) return;
    ++cursor.window;
    cursor.position = 0;
    if (rule_) return;  // its evictor's state belongs to one window
  }
}

void Scorer::forward() {
  if (eviction_) {
    observer_->start();
    observer_->add(*eviction_);
  }
  runner_->forward();
  if (!rule_ || !rule_->evictor->gated()) return;
  int64_t stored = tables_ - 1;
  for (int64_t g = 0; g < tables_; ++g) {
    const BatchSpan& span = runner_->batch().spans_of(g).back();
    stored += span.first_slot + span.count;
  }
  most_kept_ = std::max(most_kept_, stored / tables_);
}

// Drops what the evictor chooses, if the window goes on. The blocks stay with the window.
void Scorer::evict(const Cursor& cursor) {
  if (!eviction_ || cursor.position != eviction_->next()) return;
  drop_tokens(*runner_, *eviction_, cursor.position, 0,
              [&](int64_t g) { return std::span<const BlockId>(blocks_[static_cast<size_t>(g)]); });
}

Result<void> Scorer::run(std::span<const TokenId> tokens, std::span<const ScoreWindow> windows, TokenId window_start,
                         const Sink& sink) {
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= vocab())
      return Error::user(
          fmt::format("token {} of the text: id {} is outside the model's vocabulary of {}", i, tokens[i], vocab()));
  if (window_start >= vocab())
    return Error::user(
        fmt::format("start token: id {} is outside the model's vocabulary of {}", window_start, vocab()));
  for (const ScoreWindow& w : windows)
    if (w.begin < 0 || w.count < 2 || w.count > longest_ || w.first_scored < 1 || w.first_scored > w.count ||
        w.begin > static_cast<int64_t>(tokens.size()) - w.count)
      return Error::user(fmt::format("window at token {}: {} tokens do not fit a context of {} and a text of {}",
                                     w.begin, w.count, longest_, tokens.size()));
  Cursor cursor;
  while (cursor.window < windows.size()) {
    fill_batch(tokens, windows, window_start, cursor);
    if (runner_->tokens() == 0) break;
    forward();
    MILLRACE_TRY_VOID(runner_->take_failure());
    evict(cursor);
    for (size_t i = 0; i < rows_.size(); ++i) rows_[i].logits = runner_->logits(static_cast<int64_t>(i));
    if (!rows_.empty()) MILLRACE_TRY_VOID(sink(rows_));
  }
  return {};
}

}  // namespace millrace
