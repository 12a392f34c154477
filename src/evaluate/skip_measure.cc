#include "evaluate/skip_measure.h"

#include <fmt/format.h>

#include <algorithm>

#include "kv/kv_formats.h"
#include "models/layer_mixers.h"
#include "sampling/logprobs.h"

namespace millrace {
namespace {

constexpr int64_t kBatchTokens = 128;
constexpr int64_t kMeasureBlockTokens = 16;

double bytes_of(const Weight& weight) {
  return weight.present() ? static_cast<double>(weight.format->row_bytes(weight.cols) * weight.rows) : 0;
}

double bytes_of(const MlpWeights& mlp) { return bytes_of(mlp.gate) + bytes_of(mlp.up) + bytes_of(mlp.down); }

double mixer_bytes(const LayerWeights& layer) {
  double bytes = bytes_of(layer.q) + bytes_of(layer.k) + bytes_of(layer.v) + bytes_of(layer.output);
  if (layer.mixer)
    for (const Weight* weight : layer.mixer->matrices()) bytes += bytes_of(*weight);
  return bytes;
}

// A token reads the experts that it chooses.
double mlp_bytes(const LayerSpec& spec, const LayerWeights& layer) {
  double experts = 0;
  for (const MlpWeights& expert : layer.experts) experts += bytes_of(expert);
  if (!layer.experts.empty())
    experts *= static_cast<double>(spec.experts.used) / static_cast<double>(layer.experts.size());
  return bytes_of(layer.mlp) + experts + bytes_of(layer.router) + bytes_of(layer.shared) + bytes_of(layer.shared_gate);
}

}  // namespace

Result<std::unique_ptr<SkipMeasure>> SkipMeasure::create(std::shared_ptr<const LanguageModel> model,
                                                         std::vector<TokenId> tokens,
                                                         const SkipMeasureOptions& options) {
  const auto& parts = model->parts();
  const ArchSpec& spec = parts.model->spec();
  if (keeps(spec, StateKind::recurrent))
    return Error::unsupported(
        "draft-search: does not measure models with recurrent layers; choose the blocks with attn= and mlp=");
  if (shares_keys(spec))
    return Error::unsupported(
        "draft-search: some of the model's layers read the keys of others, which a draft would skip");
  auto made = std::unique_ptr<SkipMeasure>(new SkipMeasure());
  made->options_ = options;
  const int64_t window = made->options_.window = std::min(options.window, parts.model->context());
  made->windows_ = std::ssize(tokens) / window;
  made->chunks_ = window / options.longest - 1;  // the first ones are context
  if (made->windows_ == 0 || made->chunks_ < 1)
    return Error::user(fmt::format("text: {} tokens; {} are needed, and twice the longest draft of {}", tokens.size(),
                                   window, options.longest));
  tokens.resize(static_cast<size_t>(made->windows_ * window));
  made->tokens_ = std::move(tokens);
  MILLRACE_TRY(const KvFormats formats, find_kv_formats("f16", parts.kernels));
  const int64_t blocks = (window + kMeasureBlockTokens - 1) / kMeasureBlockTokens;
  const int64_t batch = std::max(kBatchTokens, options.longest);
  MILLRACE_TRY(made->runner_,
               ModelRunner::create_charged(*parts.model, parts.kernels,
                                           {.threads = parts.threads->get(options.threads),
                                            .layout = formats.layout(kMeasureBlockTokens, parts.model->kv_layers()),
                                            .blocks = made->windows_ * blocks,
                                            .limits = {batch, batch, window},
                                            .streams = batch / options.longest + 1},
                                           parts.accounts, "search with fewer tokens, or raise the budget"));
  for (int64_t w = 0; w < made->windows_; ++w) {
    made->blocks_.emplace_back();
    for (int64_t b = 0; b < blocks; ++b) {
      MILLRACE_TRY(const BlockId block, made->runner_->kv().allocate());
      made->blocks_.back().push_back(block);
    }
  }
  for (int64_t i = 0; i < spec.layer_count(); ++i) {
    made->attention_bytes_.push_back(mixer_bytes(parts.model->layer(i)));
    made->mlp_bytes_.push_back(mlp_bytes(spec.layers[static_cast<size_t>(i)], parts.model->layer(i)));
  }
  made->other_bytes_ = bytes_of(parts.model->head());
  made->model_ = std::move(model);
  made->run_whole();
  MILLRACE_TRY_VOID(made->runner_->take_failure());
  for (int64_t w = 0; w < made->windows_; ++w)
    for (int64_t chunk = 1; chunk <= made->chunks_; ++chunk) made->drafts_ += made->is_own(w, chunk * options.longest);
  if (made->drafts_ == 0)
    return Error::user("text: the model would have written nothing of it; use a text like its own answers");
  return made;
}

std::span<const TokenId> SkipMeasure::window(int64_t index) const {
  return std::span(tokens_).subspan(static_cast<size_t>(index * options_.window), static_cast<size_t>(options_.window));
}

TokenId SkipMeasure::likeliest(int64_t row) {
  const auto vocab = static_cast<size_t>(runner_->model().spec().vocab);
  return static_cast<TokenId>(std::ranges::max_element(std::span(runner_->logits(row), vocab)) -
                              std::span(runner_->logits(row), vocab).begin());
}

void SkipMeasure::begin(int64_t window, int64_t first) { runner_->begin(blocks_[static_cast<size_t>(window)], first); }

// Stores the keys and values of all windows. The first time it also notes what the model says.
void SkipMeasure::run_whole() {
  const bool first_time = whole_.empty();
  const int64_t batch = runner_->limits().tokens;
  for (int64_t w = 0; w < windows_; ++w) {
    for (int64_t first = 0; first < options_.window; first += batch) {
      const int64_t end = std::min(options_.window, first + batch);
      runner_->start();
      begin(w, first);
      for (int64_t i = first; i < end; ++i) runner_->add(window(w)[static_cast<size_t>(i)], i, first_time);
      runner_->forward();
      for (int64_t i = first; first_time && i < end; ++i) whole_.push_back(likeliest(i - first));
    }
  }
}

// Whether the whole model would have written that token.
bool SkipMeasure::is_own(int64_t window, int64_t at) const {
  const auto index = static_cast<size_t>(window * options_.window + at);
  return tokens_[index] == whole_[index - 1];
}

// Runs one chunk of every window.
void SkipMeasure::run_chunks(int64_t chunk, std::vector<Place>& places) {
  const int64_t k = options_.longest, first = chunk * k;
  const int64_t at_once = std::max<int64_t>(1, runner_->limits().tokens / k);
  for (int64_t w = 0; w < windows_; w += at_once) {
    const int64_t end = std::min(windows_, w + at_once);
    runner_->start();
    for (int64_t one = w; one < end; ++one) {
      begin(one, first);
      for (int64_t i = first; i < first + k; ++i) runner_->add(window(one)[static_cast<size_t>(i)], i, true);
    }
    runner_->forward();
    for (int64_t one = w; one < end; ++one) {
      for (int64_t i = 0; i < k && is_own(one, first + i); ++i) {
        Place& place = places[static_cast<size_t>(i)];
        ++place.reached;
        if (likeliest((one - w) * k + i) != whole_[static_cast<size_t>(one * options_.window + first + i)]) break;
        ++place.right;
      }
    }
  }
}

double SkipMeasure::cost_of(const SkippedBlocks& skipped) const {
  double all = other_bytes_, left = other_bytes_;
  for (int64_t i = 0; i < layers(); ++i) {
    const auto at = static_cast<size_t>(i);
    all += attention_bytes_[at] + mlp_bytes_[at];
    if (!skipped.mixer_of(i)) left += attention_bytes_[at];
    if (!skipped.mlp_of(i)) left += mlp_bytes_[at];
  }
  return left / all;
}

// Chunks run from the last one to the first, so that each overwrites only keys that no later one reads.
Result<SkipGain> SkipMeasure::measure(const SkippedBlocks& skipped) {
  run_whole();
  runner_->context().skipped = &skipped;
  std::vector<Place> places(static_cast<size_t>(options_.longest));
  for (int64_t chunk = chunks_; chunk >= 1; --chunk) run_chunks(chunk, places);
  runner_->context().skipped = nullptr;
  MILLRACE_TRY_VOID(runner_->take_failure());
  const double cost = cost_of(skipped);
  SkipGain best;
  double tokens = 0, share = 1, get_on = 1;
  for (int64_t k = 1; k <= options_.longest; ++k) {
    const Place& place = places[static_cast<size_t>(k - 1)];
    if (place.reached > 0) share = static_cast<double>(place.right) / static_cast<double>(place.reached);
    get_on *= share;  // where no draft got to, as at the token before
    tokens += get_on;
    const double gain = (1 + tokens) / (1 + static_cast<double>(k) * cost);
    if (gain > best.gain) best = {gain, k, tokens, cost};
  }
  return best;
}

SkippedBlocks skipped_blocks(const SkipVector& vector) {
  const auto half = vector.begin() + std::ssize(vector) / 2;
  return {{vector.begin(), half}, {half, vector.end()}};
}

SkipVector skip_vector(const SkippedBlocks& skipped) {
  SkipVector out = skipped.attention;
  out.insert(out.end(), skipped.mlp.begin(), skipped.mlp.end());
  return out;
}

}  // namespace millrace
