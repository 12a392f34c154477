#include "models/neurons/neuron_mlp.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/activation.h"
#include "models/blocks/blocks.h"

namespace millrace {
namespace {

constexpr int64_t kRowsAtOnce = 64;            // neurons that a thread gathers; a multiple of every kernel's row tile
constexpr int64_t kOutputsAtOnce = 512;        // outputs of the down matrix that a thread computes
constexpr int64_t kTokensOfColumns = 16;       // tokens whose columns are listed together
constexpr int64_t kWorthTwoThreads = 1 << 15;  // multiply-adds

// Calls body(i, worker) on several threads if `work`, in multiply-adds, makes that worthwhile.
template <typename Body>
void spread(ThreadPool& pool, int64_t jobs, int64_t work, const Body& body) {
  if (work < kWorthTwoThreads || jobs < 2) {
    for (int64_t i = 0; i < jobs; ++i) body(i, 0);
  } else {
    pool.parallel_for(jobs, body);
  }
}

}  // namespace

Result<void> NeuronMlp::open(NeuronStore::Options options) {
  MILLRACE_TRY(store_, NeuronStore::create(file_, std::move(options)));
  return {};
}

Result<void> NeuronMlp::attach(const ModelFiles& files, const Model& model, const KernelTable& table,
                               ThreadPool& pool) {
  MILLRACE_TRY_VOID(file_.check_model(files, model.spec()));
  const NeuronShape& shape = file_.shape();
  for (int64_t l = 0; l < shape.layers; ++l) {
    const MlpWeights& mlp = model.layer(l).mlp;
    if (mlp.up.parts || mlp.down.parts || mlp.gate.parts)
      return Error::unsupported("MLPs with weight parts are not computed by neuron; use weights=stream");
    if (!predicts_) continue;
    const NeuronTables tables = file_.tables(l);
    MILLRACE_TRY(auto predictor,
                 NeuronPredictor::create(tables.a, tables.b, tables.thresholds, shape.width, shape.rank, table, pool));
    predictors_.push_back(std::move(predictor));
  }
  return {};
}

std::string NeuronMlp::choice() const {
  return fmt::format("{}:file={}{}", source_, file_.path(), predicts_ ? ",predictor=file" : "");
}

WeightFigures NeuronMlp::figures() const {
  const std::lock_guard lock(mutex_);
  WeightFigures out = store_->figures();
  out.neurons = all_;
  out.neurons_run = run_;
  return out;
}

void NeuronMlp::run(const ArchSpec& spec, LinearId at, const MlpWeights& weights, const ActivationRows& rows,
                    ForwardContext& context) {
  for (LinearKind kind : {LinearKind::gate, LinearKind::up, LinearKind::down})
    for (const LinearWrapper* wrapper : context.hooks.wrappers())
      if (wrapper->wraps(at.of(kind)) && wrapper->replaces(at.of(kind)))
        return context.fail(Error::unsupported(
            "matrices of MLPs that are computed by neuron cannot be replaced; use weights=resident or weights=stream"));
  const std::lock_guard lock(mutex_);
  if (auto computed = compute({spec, at, weights, rows, context}); !computed.ok()) context.fail(computed.error());
}

void NeuronMlp::reserve(int64_t tokens, int threads) {
  const NeuronShape& shape = file_.shape();
  masks_.resize(std::max(masks_.size(), static_cast<size_t>(tokens * shape.hidden)));
  workers_.resize(std::max(workers_.size(), static_cast<size_t>(threads)));
  for (Worker& worker : workers_)
    worker.out.resize(std::max(worker.out.size(), static_cast<size_t>(tokens * kRowsAtOnce)));
}

Result<void> NeuronMlp::reserve_rows(const Weight& first, const Weight& up) {
  const auto room = [](AlignedBuffer& buffer, int64_t bytes) -> Result<void> {
    if (buffer.bytes() >= bytes) return {};
    MILLRACE_TRY(buffer, AlignedBuffer::allocate(bytes, "rows of neurons"));
    return {};
  };
  for (Worker& worker : workers_) {
    for (const Weight* weight : {&first, &up}) {
      MILLRACE_TRY_VOID(room(worker.rows, kRowsAtOnce * weight->format->row_bytes(weight->cols)));
      MILLRACE_TRY_VOID(room(worker.packed, weight->kernel->packed_bytes(kRowsAtOnce, weight->cols)));
    }
  }
  return {};
}

// The union of the tokens' neurons whose gate is positive. NaN counts, so that damaged inputs show in the output.
void NeuronMlp::choose_positive(const float* gate, int64_t tokens) {
  const int64_t hidden = file_.shape().hidden;
  neurons_.clear();
  for (int64_t i = 0; i < tokens * hidden; ++i) {
    const bool active = !(gate[i] <= 0.0f);
    masks_[static_cast<size_t>(i)] = active;
    run_ += active;
  }
  for (int64_t n = 0; n < hidden; ++n)
    for (int64_t t = 0; t < tokens; ++t)
      if (masks_[static_cast<size_t>(t * hidden + n)]) {
        neurons_.push_back(static_cast<int32_t>(n));
        break;
      }
}

Result<void> NeuronMlp::choose_predicted(int64_t layer, const float* x, int64_t tokens, ForwardContext& context) {
  const int64_t hidden = file_.shape().hidden;
  const NeuronPredictor& predictor = predictors_[static_cast<size_t>(layer)];
  MILLRACE_TRY_VOID(predictor.score(x, tokens, context.kernels(), context.pool(), predictions_));
  neurons_.clear();
  for (int64_t n = 0; n < hidden; ++n) {
    bool any = false;
    for (int64_t t = 0; t < tokens; ++t) {
      const bool active = predictor.active(predictions_, t, n);
      masks_[static_cast<size_t>(t * hidden + n)] = active;
      run_ += active;
      any = any || active;
    }
    if (any) neurons_.push_back(static_cast<int32_t>(n));
  }
  return {};
}

// Rows [first, first + count) of the batch's neurons, for all tokens. The kernel sees them as a matrix of their own.
void NeuronMlp::multiply_chunk(const Rows& matrix, const ActivationRows& x, size_t first, size_t count,
                               Worker& worker) const {
  const Weight& weight = matrix.weight;
  const MatmulKernel& kernel = *weight.kernel;
  const auto row_bytes = static_cast<size_t>(weight.format->row_bytes(weight.cols));
  const bool stored = kernel.run_stored && x.tokens <= kernel.stored_tokens && kRowsAtOnce % kernel.stored_rows == 0;
  const size_t whole = stored ? (count + static_cast<size_t>(kernel.stored_rows) - 1) /
                                    static_cast<size_t>(kernel.stored_rows) * static_cast<size_t>(kernel.stored_rows)
                              : count;
  for (size_t i = 0; i < whole; ++i)  // the last row fills the kernel's last tile
    std::memcpy(worker.rows.data() + i * row_bytes, bundles_[first + std::min(i, count - 1)] + matrix.at, row_bytes);
  MatmulArgs args{.weights = worker.rows.data(),
                  .rows = static_cast<int64_t>(whole),
                  .cols = weight.cols,
                  .row_end = static_cast<int64_t>(whole),
                  .x = x.data,
                  .x_stride = x.stride,
                  .tokens = x.tokens,
                  .y = worker.out.data(),
                  .y_stride = kRowsAtOnce};
  if (stored) {
    kernel.run_stored(args);
  } else {
    kernel.pack(worker.rows.data(), nullptr, args.rows, weight.cols, 0, args.rows, worker.packed.data());
    args.weights = worker.packed.data();
    kernel.run(args);
  }
  const int64_t hidden = file_.shape().hidden;
  for (int64_t t = 0; t < x.tokens; ++t) {
    const float* const out = worker.out.data() + t * kRowsAtOnce;
    float* const y = matrix.y + t * hidden;
    for (size_t i = 0; i < count; ++i) {
      const auto n = static_cast<size_t>(neurons_[first + i]);
      y[n] = matrix.bias.empty() ? out[i] : out[i] + matrix.bias[n];
    }
  }
}

void NeuronMlp::multiply_rows(std::span<const Rows> matrices, const ActivationRows& x, ForwardContext& context) {
  const int64_t chunks = (std::ssize(neurons_) + kRowsAtOnce - 1) / kRowsAtOnce;
  const int64_t work = std::ssize(neurons_) * std::ssize(matrices) * x.cols * x.tokens;
  spread(context.pool(), chunks * std::ssize(matrices), work, [&](int64_t job, int worker) {
    const auto first = static_cast<size_t>(job % chunks * kRowsAtOnce);
    const size_t count = std::min<size_t>(kRowsAtOnce, neurons_.size() - first);
    multiply_chunk(matrices[static_cast<size_t>(job / chunks)], x, first, count, workers_[static_cast<size_t>(worker)]);
  });
}

// Sets the values of neurons that a token does not compute to 0; adapters may have added to them.
void NeuronMlp::mask(float* values, int64_t tokens) const {
  for (int64_t i = 0; i < tokens * file_.shape().hidden; ++i)
    if (!masks_[static_cast<size_t>(i)]) values[i] = 0.0f;
}

void NeuronMlp::list_columns(const NeuronTables& tables, const uint8_t* row, Columns& out) const {
  const NeuronShape& shape = file_.shape();
  out.columns.clear();
  out.x.clear();
  out.ends.clear();
  out.scales.clear();
  out.x_scales.clear();
  int64_t group = -1;
  for (size_t i = 0; i < neurons_.size(); ++i) {
    const int64_t n = neurons_[i], own = n / kActivationGroup;
    const uint8_t* const record = row + own * kQ8GroupBytes;
    const auto x = static_cast<int8_t>(record[n % kActivationGroup]);
    float x_scale;
    std::memcpy(&x_scale, record + kQ8ScaleAt, sizeof x_scale);
    if (x == 0 && x_scale == x_scale) continue;  // a scale that is NaN shows in the output
    if (own != group) {
      group = own;
      out.ends.push_back(0);
      out.scales.push_back(tables.scales.data() + own * shape.width);
      out.x_scales.push_back(x_scale);
    }
    out.columns.push_back(reinterpret_cast<const int8_t*>(bundles_[i] + shape.down_at() - store_->skipped()));
    out.x.push_back(x);
    out.ends.back() = static_cast<int32_t>(out.x.size());
  }
}

// The product with a q8_0 down matrix -> context.block_out
void NeuronMlp::add_levels(int64_t layer, const ActivationRows& inner, ForwardContext& context) {
  const NeuronShape& shape = file_.shape();
  const NeuronTables tables = file_.tables(layer);
  const NeuronColumnKernels& kernels = neuron_column_kernels();
  const int64_t parts = (shape.width + kOutputsAtOnce - 1) / kOutputsAtOnce;
  columns_.resize(
      static_cast<size_t>(std::max<int64_t>(std::ssize(columns_), std::min(kTokensOfColumns, inner.tokens))));
  for (int64_t first = 0; first < inner.tokens; first += kTokensOfColumns) {
    const int64_t count = std::min(kTokensOfColumns, inner.tokens - first);
    spread(context.pool(), count, count * std::ssize(neurons_) * 16, [&](int64_t t, int) {
      list_columns(tables, inner.data + (first + t) * inner.stride, columns_[static_cast<size_t>(t)]);
    });
    spread(context.pool(), count * parts, count * std::ssize(neurons_) * shape.width, [&](int64_t job, int) {
      const Columns& from = columns_[static_cast<size_t>(job / parts)];
      const int64_t begin = job % parts * kOutputsAtOnce;
      float* const y = context.block_out.as<float>() + (first + job / parts) * shape.width;
      kernels.sum({.columns = from.columns.data(),
                   .x = from.x.data(),
                   .ends = from.ends.data(),
                   .scales = from.scales.data(),
                   .x_scales = from.x_scales.data(),
                   .groups = std::ssize(from.ends)},
                  begin, std::min(shape.width, begin + kOutputsAtOnce), y);
    });
  }
}

// The product with an f32 or f16 down matrix -> context.block_out
void NeuronMlp::add_values(const float* inner, int64_t tokens, ForwardContext& context) const {
  const NeuronShape& shape = file_.shape();
  const KernelTable& kernels = context.kernels();
  const auto decode = kernels.find_codec(shape.down)->decode;
  const int64_t parts = (shape.width + kOutputsAtOnce - 1) / kOutputsAtOnce;
  spread(context.pool(), tokens * parts, tokens * std::ssize(neurons_) * shape.width, [&](int64_t job, int) {
    const int64_t t = job / parts, begin = job % parts * kOutputsAtOnce;
    const int64_t count = std::min(kOutputsAtOnce, shape.width - begin);
    float* const y = context.block_out.as<float>() + t * shape.width + begin;
    std::fill_n(y, count, 0.0f);
    float column[kOutputsAtOnce];
    for (size_t i = 0; i < neurons_.size(); ++i) {
      const float x = inner[t * shape.hidden + neurons_[i]];
      if (x == 0.0f) continue;
      decode(bundles_[i] + shape.down_at() - store_->skipped() + begin * shape.down->block_bytes, column, count);
      kernels.add_scaled(column, x, y, count);
    }
  });
}

void NeuronMlp::observe(const Call& call, LinearKind kind, const Weight& weight, const float* x) {
  const LinearId id = call.at.of(kind);
  for (ForwardObserver* observer : call.context.hooks.observers())
    if (observer->taps(id)) observer->input({id, weight, x, call.rows.tokens});
}

void NeuronMlp::adapt(const Call& call, LinearKind kind, const Weight& weight, const float* x, float* y) {
  const LinearId id = call.at.of(kind);
  for (LinearWrapper* wrapper : call.context.hooks.wrappers())
    if (wrapper->wraps(id))
      wrapper->apply({{id, weight, x, call.rows.tokens}, y, call.context.kernels(), call.context.pool()});
}

// Fills the first matrix's outputs: of all neurons, or zeros where predictors choose. Then chooses the neurons.
Result<void> NeuronMlp::choose(const Call& call, const Weight& first, const std::vector<float>& bias, float* y) {
  const int64_t tokens = call.rows.tokens, hidden = file_.shape().hidden;
  const float* const x = call.context.normed.as<float>();
  if (predicts_) {
    std::fill_n(y, tokens * hidden, 0.0f);
    return choose_predicted(call.at.layer, x, tokens, call.context);
  }
  LinearPart part;
  part.weight = &first;
  part.x = call.rows;
  part.y = y;
  part.y_stride = hidden;
  part.bias = bias.empty() ? nullptr : bias.data();
  linear(call.context.pool(), {&part, 1}, call.context.shapes());
  adapt(call, file_.shape().gated ? LinearKind::gate : LinearKind::up, first, x, y);
  choose_positive(y, tokens);
  return {};
}

// Rows of the chosen neurons, in the matrices whose outputs are still missing.
Result<void> NeuronMlp::fill_rows(const Call& call, float* gate, float* up) {
  const NeuronShape& shape = file_.shape();
  const MlpWeights& weights = call.weights;
  const int64_t tokens = call.rows.tokens;
  const float* const x = call.context.normed.as<float>();
  if (shape.gated) std::fill_n(up, tokens * shape.hidden, 0.0f);
  if (!shape.gated && !predicts_) return {};
  MILLRACE_TRY_VOID(reserve_rows(shape.gated ? weights.gate : weights.up, weights.up));
  const Rows both[] = {{weights.up, weights.up_bias, shape.up_at() - store_->skipped(), up},
                       {weights.gate, weights.gate_bias, 0, gate}};
  const bool gates = shape.gated && predicts_;
  if (!neurons_.empty()) multiply_rows(std::span(both).first(gates ? 2 : 1), call.rows, call.context);
  adapt(call, LinearKind::up, weights.up, x, up);
  if (gates) adapt(call, LinearKind::gate, weights.gate, x, gate);
  if (predicts_) mask(shape.gated ? gate : up, tokens);
  return {};
}

Result<void> NeuronMlp::compute(const Call& call) {
  const NeuronShape& shape = file_.shape();
  const MlpWeights& weights = call.weights;
  ForwardContext& context = call.context;
  const KernelTable& kernels = context.kernels();
  const int64_t tokens = call.rows.tokens, hidden = shape.hidden;
  float* const gate = context.gate.as<float>();
  float* const up = context.up.as<float>();
  float* const inner = shape.gated ? gate : up;  // of the first matrix, then of the activation
  reserve(tokens, context.pool().threads());
  all_ += tokens * hidden;
  observe(call, LinearKind::up, weights.up, context.normed.as<float>());
  if (shape.gated) observe(call, LinearKind::gate, weights.gate, context.normed.as<float>());
  MILLRACE_TRY_VOID(
      choose(call, shape.gated ? weights.gate : weights.up, shape.gated ? weights.gate_bias : weights.up_bias, inner));
  MILLRACE_TRY_VOID(store_->acquire(call.at.layer, neurons_, tokens, bundles_));
  MILLRACE_TRY_VOID(fill_rows(call, gate, up));
  uint8_t* const encoded = context.encoded_hidden.data();
  const ActivationRows inner_rows = activation_rows(weights.down.format->activation, tokens, hidden, encoded);
  activate_rows(
      context, tokens, hidden,
      [&](int64_t t) { activate(call.spec, kernels, gate + t * hidden, up + t * hidden, hidden); },
      [&](int64_t t) { encode_row(kernels, inner_rows, t, inner + t * hidden, encoded); });
  observe(call, LinearKind::down, weights.down, inner);
  if (shape.down_has_scales())
    add_levels(call.at.layer, inner_rows, context);
  else
    add_values(inner, tokens, context);
  float* const out = context.block_out.as<float>();
  for (int64_t t = 0; !weights.down_bias.empty() && t < tokens; ++t)
    kernels.add(weights.down_bias.data(), out + t * shape.width, shape.width);
  adapt(call, LinearKind::down, weights.down, inner, out);
  return {};
}

}  // namespace millrace
