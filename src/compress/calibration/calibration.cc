#include "compress/calibration/calibration.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/unicode.h"

namespace millrace {
namespace {

constexpr int64_t kCalibrationBlock = 16;  // tokens
constexpr int64_t kDefaultWindow = 512;
constexpr size_t kTextPerStrange = 100;  // bytes of a text for each that is not of a text
constexpr int64_t kMeterColumns = 256;   // that one thread sums

// Keeps each sample_step-th row. When there are too many, every second one goes.
void sample_rows(LinearStatistics& to, const float* x, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    if ((to.rows + r) % to.sample_step != 0) continue;
    if (std::ssize(to.samples) == LinearStatistics::kMaxSamples * cols) {
      for (int64_t i = 1; 2 * i < LinearStatistics::kMaxSamples; ++i)
        std::copy_n(to.samples.begin() + 2 * i * cols, cols, to.samples.begin() + i * cols);
      to.samples.resize(to.samples.size() / 2);
      to.sample_step *= 2;
      if ((to.rows + r) % to.sample_step != 0) continue;
    }
    to.samples.insert(to.samples.end(), x + r * cols, x + (r + 1) * cols);
  }
}

// Adds the input rows of the matrices in `statistics` to their sums.
class InputMeter final : public ForwardObserver {
 public:
  InputMeter(uint32_t needs, StatisticsMap& statistics, ModelRunner& runner)
      : needs_(needs), statistics_(statistics), runner_(runner) {}

  bool taps(const LinearId& id) const override { return id.layer >= 0 && statistics_.contains(id); }
  void input(const LinearInput& in) override { add(statistics_.at(in.id), in.x, in.tokens, in.weight.cols); }
  // The head's input.
  void hidden(const float* hidden, int64_t rows, int64_t width) override {
    if (const auto head = statistics_.find(LinearId{}); head != statistics_.end())
      add(head->second, hidden, rows, width);
  }

  Result<void> done;

 private:
  void add(LinearStatistics& to, const float* x, int64_t rows, int64_t cols) {
    if (!done.ok() || rows == 0) return;
    if (needs_ & kInputSamples) sample_rows(to, x, rows, cols);
    to.rows += rows;
    to.squares.resize(static_cast<size_t>(cols));
    if (needs_ & kInputRanges) {
      to.least.resize(static_cast<size_t>(cols), std::numeric_limits<float>::infinity());
      to.most.resize(static_cast<size_t>(cols), -std::numeric_limits<float>::infinity());
    }
    if (needs_ & kInputSums) to.sums.resize(to.squares.size());
    if (needs_ & kInputMagnitudes) to.magnitudes.resize(to.squares.size());
    runner_.threads().parallel_for((cols + kMeterColumns - 1) / kMeterColumns, [&](int64_t part, int) {
      const int64_t begin = part * kMeterColumns, end = std::min(cols, begin + kMeterColumns);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = begin; c < end; ++c) {
          const double value = x[r * cols + c];
          to.squares[static_cast<size_t>(c)] += value * value;
          if (needs_ & kInputSums) to.sums[static_cast<size_t>(c)] += value;
          if (needs_ & kInputMagnitudes) to.magnitudes[static_cast<size_t>(c)] += std::fabs(value);
        }
      for (int64_t r = 0; r < rows && !to.least.empty(); ++r)
        for (int64_t c = begin; c < end; ++c) {
          float &least = to.least[static_cast<size_t>(c)], &most = to.most[static_cast<size_t>(c)];
          least = std::min(least, x[r * cols + c]);
          most = std::max(most, x[r * cols + c]);
        }
    });
    if (needs_ & kSecondMoments) done = to.moments.add(x, rows, runner_.context().kernels(), runner_.threads());
  }

  uint32_t needs_;
  StatisticsMap& statistics_;
  ModelRunner& runner_;
};

// A hook for the time of a scope.
class HookScope {
 public:
  HookScope(ForwardHooks& hooks, ForwardObserver& observer) : hooks_(hooks), observer_(observer) {
    hooks_.add(observer_);
  }
  ~HookScope() { hooks_.remove(observer_); }
  HookScope(const HookScope&) = delete;

 private:
  ForwardHooks& hooks_;
  ForwardObserver& observer_;
};

}  // namespace

std::string text_warning(const std::string& name, std::string_view text) {
  size_t strange = 0;
  for (size_t i = 0; i < text.size();) {
    const CodePoint one = decode_utf8(text, i);
    const bool control =
        one.value < 0x20 && one.value != '\t' && one.value != '\n' && one.value != '\r' && one.value != '\f';
    if (!one.valid || control) strange += one.length;
    i += one.length;
  }
  if (strange * kTextPerStrange <= text.size()) return "";
  return fmt::format(
      "{} does not look like text: {} of {} bytes are not UTF-8 or are control characters; calibrate with text like "
      "that "
      "which the model is to read",
      name, strange, text.size());
}

// Whole windows of the text, each with the start token in place of its first one, as `millrace perplexity` has them.
Result<void> InputCalibration::read(const CalibrationOptions& options) {
  MILLRACE_TRY(tokens_, model_->encode(options.text, true, false));
  const int64_t all = std::ssize(tokens_), windows = std::min(options.windows, all / context_);
  if (windows == 0)
    return Error::user(fmt::format("{}: {} tokens do not fill a window of {}; use a longer text or a smaller --context",
                                   options.name, all, context_));
  if (options.held_out > 0) {
    if (windows < 2)
      return Error::user(fmt::format(
          "{}: is one window of {} tokens, of which no part can be held out; use a longer text or a smaller --context",
          options.name, context_));
    held_out_ = std::clamp<int64_t>(std::llround(options.held_out * static_cast<double>(windows)), 1, windows - 1);
  }
  tokens_.resize(static_cast<size_t>(windows * context_));
  const TokenizerSpec& spec = model_->parts().tokenizer->spec();
  for (int64_t i = 0; spec.add_bos && spec.bos && i < windows; ++i)
    tokens_[static_cast<size_t>(i * context_)] = *spec.bos;
  for (TokenId token : tokens_)
    if (token < 0 || token >= model_->info().vocab)
      return Error::user(fmt::format("{}: token {} is outside the model's vocabulary of {}", options.name, token,
                                     model_->info().vocab));
  seen_ = {0, windows - held_out_};
  unseen_ = {windows - held_out_, held_out_};
  const XXH128_hash_t hash = XXH3_128bits(options.text.data(), options.text.size());
  hash_ = fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  return {};
}

Result<std::unique_ptr<InputCalibration>> InputCalibration::create(std::shared_ptr<const LanguageModel> model,
                                                                   std::shared_ptr<ThreadPool> threads,
                                                                   const CalibrationOptions& options) {
  const auto& parts = model->parts();
  const int64_t context = options.context > 0 ? options.context : std::min(kDefaultWindow, parts.model->context());
  if (context < 2 || context > parts.model->context())
    return Error::user(
        fmt::format("context: must be 2 to {} tokens for this model, is {}", parts.model->context(), context));
  if (parts.model->spec().streams > 1)
    return Error::unsupported("calibration: the model has several residual streams, and inputs of layers are of one");
  auto made = std::unique_ptr<InputCalibration>(new InputCalibration());
  made->model_ = model;
  made->context_ = context;
  made->stream_bytes_ = options.stream_bytes;
  made->scratch_ = options.scratch;
  MILLRACE_TRY_VOID(made->read(options));
  const Format* format = find_format("f32");
  const int64_t blocks = (context + kCalibrationBlock - 1) / kCalibrationBlock;
  MILLRACE_TRY(made->runner_,
               ModelRunner::create_charged(*parts.model, parts.kernels,
                                           {.threads = std::move(threads),
                                            .layout = {format, kCalibrationBlock, parts.model->kv_layers()},
                                            .blocks = blocks,
                                            .limits = {context, 1, context}},
                                           parts.accounts, "lower --context or raise --memory"));
  for (int64_t i = 0; i < blocks; ++i) {
    MILLRACE_TRY(BlockId block, made->runner_->kv().allocate());
    made->blocks_.push_back(block);
  }
  return made;
}

Result<void> InputCalibration::run(ForwardObserver& observer, Layers layers, bool head,
                                   const std::function<Result<void>()>& after) {
  return run_windows(seen_, observer, layers, head, after);
}

// From layers.from on, which is 0 or the layer whose inputs are stored.
Result<void> InputCalibration::run_window(int64_t window, ForwardObserver& observer, const Layers& layers, bool head) {
  const Model& model = *model_->parts().model;
  ForwardContext& context = runner_->context();
  // The last layer continues with the output rows only.
  const bool outputs = layers.to == model.spec().layer_count();
  runner_->start();
  runner_->begin(blocks_, 0);
  for (int64_t i = 0; i < context_; ++i) runner_->add(tokens_[static_cast<size_t>(window * context_ + i)], i, outputs);
  model.embed(runner_->batch(), context);  // the rotations of the positions, too
  if (layers.from > 0) MILLRACE_TRY_VOID(streams_->read(window, context.residual.as<float>()));
  const Batch* batch = &runner_->batch();
  int64_t from = layers.from;
  if (layers.next >= 0) {
    batch = &model.run_layers(*batch, from, layers.next, context);
    model.add_pending(context_, context);
    MILLRACE_TRY_VOID(streams_->write(window, context.residual.as<float>()));
    from = layers.next;
  }
  batch = &model.run_layers(*batch, from, layers.to, context);
  if (!head || !outputs) return {};
  model.hidden(*batch, context);
  observer.residual(layers.to, context.residual.as<float>(), context_, model.spec().width);
  return {};
}

Result<void> InputCalibration::run_windows(Windows& windows, ForwardObserver& observer, Layers layers, bool head,
                                           const std::function<Result<void>()>& after) {
  const HookScope scope(runner_->hooks(), observer);
  layers.from = windows.stored <= layers.from ? windows.stored : 0;
  if (layers.next <= layers.from) layers.next = -1;  // they are stored already
  if (layers.next >= 0 && !streams_) {
    MILLRACE_TRY(streams_,
                 ResidualStore::create(seen_.count + unseen_.count, context_ * model_->parts().model->spec().width,
                                       stream_bytes_, scratch_, model_->parts().accounts));
  }
  for (int64_t w = windows.first; w < windows.first + windows.count; ++w) {
    MILLRACE_TRY_VOID(run_window(w, observer, layers, head));
    MILLRACE_TRY_VOID(after());
  }
  if (layers.next >= 0) windows.stored = layers.next;
  return {};
}

Result<void> InputCalibration::measure(uint32_t needs, StatisticsMap& statistics, bool more,
                                       const std::function<void(double)>& progress) {
  return measure_windows(seen_, needs, statistics, more, progress);
}

Result<void> InputCalibration::measure_held_out(uint32_t needs, StatisticsMap& statistics, bool more,
                                                const std::function<void(double)>& progress) {
  return measure_windows(unseen_, needs, statistics, more, progress);
}

Result<void> InputCalibration::measure_windows(Windows& windows, uint32_t needs, StatisticsMap& statistics, bool more,
                                               const std::function<void(double)>& progress) {
  InputMeter meter(needs, statistics, *runner_);
  const int64_t all = model_->parts().model->spec().layer_count();
  const bool head = statistics.contains(LinearId{});
  Layers layers{.from = all, .to = head ? all : 0};
  for (const auto& [id, unused] : statistics) {
    if (id.layer < 0) continue;
    layers.from = std::min<int64_t>(layers.from, id.layer);
    layers.to = std::max<int64_t>(layers.to, id.layer + 1);
  }
  if (more) layers.next = layers.to;
  int64_t done = 0;
  return run_windows(windows, meter, layers, head, [&]() -> Result<void> {
    progress(static_cast<double>(++done) / static_cast<double>(windows.count));
    return meter.done;
  });
}

}  // namespace millrace
