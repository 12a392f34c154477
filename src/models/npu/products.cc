#include "models/npu/products.h"

#include <algorithm>
#include <cstring>

#include "kernels/activation.h"
#include "kernels/linear.h"
#include "models/npu/calibrate.h"

namespace millrace {
namespace {

constexpr int64_t kOwnRows = 64;      // of answers, multiplied together
constexpr int64_t kStripRows = 256;   // of a matrix, to which a thread adds columns
constexpr int64_t kColdColumns = 64;  // decoded together

int64_t widest_input(const std::map<LinearId, const Weight*>& weights) {
  int64_t widest = 0;
  for (const auto& [id, weight] : weights) widest = std::max(widest, weight->cols);
  return widest;
}

// A step's prompts begin and end within chunks: one or two more than its tokens fill.
int64_t chunks_for(const ForwardLimits& limits) {
  return (limits.tokens + limits.switches.npu->chunk - 1) / limits.switches.npu->chunk + 1;
}

}  // namespace

NpuProducts::NpuProducts(const KernelTable& kernels, std::shared_ptr<ThreadPool> pool,
                         std::unique_ptr<NpuGroups> groups)
    : kernels_(kernels),
      int8_(int8_kernels(kernels.isa)),
      pool_(std::move(pool)),
      groups_(std::move(groups)),
      device_(int8_, groups_ ? groups_->device_pool() : *pool_) {}

int64_t NpuProducts::bytes(const Model& model, const ForwardLimits& limits) {
  const NpuOptions& options = *limits.switches.npu;
  const int64_t widest = widest_input(NpuMatrices::eligible(model));
  return NpuMatrices::bytes(model, options) + chunks_for(limits) * options.chunk * (int8_input_bytes(widest) + 64) +
         kOwnRows * activation_row_bytes(Activation::f32, widest);
}

Result<std::unique_ptr<NpuProducts>> NpuProducts::create(const Model& model, const KernelTable& kernels,
                                                         std::shared_ptr<ThreadPool> pool,
                                                         const ForwardLimits& limits) {
  const NpuOptions& options = *limits.switches.npu;
  if (model.source())
    return Error::unsupported(
        "kernel npu: needs int8 copies of all matrices in memory, and this model reads its weights from the disk; use "
        "weights=resident");
  NpuScales sampled;
  if (options.file.empty()) {
    MILLRACE_TRY(sampled, sample_npu_scales(model, kernels, pool));
  }
  std::unique_ptr<NpuGroups> groups;
  if (options.threads > 0) {
    MILLRACE_TRY(groups, NpuGroups::create(options.threads));
  }
  auto made = std::unique_ptr<NpuProducts>(new NpuProducts(kernels, pool, std::move(groups)));
  MILLRACE_TRY(made->matrices_,
               NpuMatrices::create(model, options.file.empty() ? sampled : options.scales, options, *pool));
  MILLRACE_TRY_VOID(made->allocate(model, limits));
  return made;
}

Result<void> NpuProducts::allocate(const Model& model, const ForwardLimits& limits) {
  chunk_ = limits.switches.npu->chunk;
  order_ = limits.switches.npu->order;
  chunks_at_once_ = chunks_for(limits);
  for (const auto& [id, matrix] : matrices_.all())
    graphs_[id] = device_.prepare(matrix.levels, chunk_, matrix.input->scale);
  const int64_t widest = widest_input(NpuMatrices::eligible(model)), rows = chunks_at_once_ * chunk_;
  MILLRACE_TRY(levels_, AlignedBuffer::allocate(rows * int8_input_bytes(widest), "int8 inputs"));
  MILLRACE_TRY(own_rows_,
               AlignedBuffer::allocate(kOwnRows * activation_row_bytes(Activation::f32, widest), "inputs of answers"));
  sums_.resize(static_cast<size_t>(rows));
  outputs_.resize(static_cast<size_t>(rows));
  outliers_.resize(static_cast<size_t>(rows));
  terms_.resize(static_cast<size_t>(rows));
  found_.resize(static_cast<size_t>(pool_->threads()));
  for (auto& found : found_) found.resize(static_cast<size_t>(widest));
  places_.reserve(static_cast<size_t>(limits.tokens));
  return {};
}

bool NpuProducts::begin(const Batch& batch) {
  places_.assign(static_cast<size_t>(batch.size()), {});
  bool prompts = false;
  for (size_t s = 0; s < batch.spans.size(); ++s) {
    const BatchSpan& span = batch.spans[s];
    if (span.answer) continue;
    prompts = true;
    for (int64_t i = 0; i < span.count; ++i) {
      const int64_t slot = span.first_slot + i;
      places_[static_cast<size_t>(span.begin + i)] = {slot / chunk_, static_cast<int32_t>(s),
                                                      static_cast<int32_t>(slot % chunk_)};
    }
  }
  find_pieces();
  return prompts;
}

void NpuProducts::keep(std::span<const int32_t> rows) {
  kept_.clear();
  for (const int32_t row : rows) kept_.push_back(places_[static_cast<size_t>(row)]);
  places_.swap(kept_);
  find_pieces();
}

void NpuProducts::restore() {
  places_ = parted_;
  find_pieces();
}

void NpuProducts::find_pieces() {
  encoded_.reset();
  prompts_.clear();
  answers_.clear();
  const Place* last = nullptr;
  for (size_t row = 0; row < places_.size(); last = &places_[row++]) {
    const Place& place = places_[row];
    std::vector<Piece>& list = place.chunk < 0 ? answers_ : prompts_;
    const bool joins = last && last->chunk == place.chunk && (place.chunk < 0 || last->stream == place.stream);
    if (!joins) list.push_back({static_cast<int64_t>(row), 0});
    ++list.back().count;
  }
}

void NpuProducts::apply(const LinearCall& call) {
  const NpuMatrix& matrix = *matrices_.find(call.in.id);
  const Piece whole{0, call.in.tokens};
  // Products of another model's matrices, or of other rows than the batch's, are not of this model's prompts.
  if (matrix.source != &call.in.weight || call.in.tokens != std::ssize(places_)) return own_products(call, {&whole, 1});
  own_products(call, answers_);
  NpuInput input;
  npu_input_of(call.in.id, input);
  for (size_t first = 0; first < prompts_.size(); first += static_cast<size_t>(chunks_at_once_)) {
    const auto count = std::min(prompts_.size() - first, static_cast<size_t>(chunks_at_once_));
    const Work work{call, matrix, {prompts_.data() + first, count}, graphs_.at(call.in.id)};
    const bool encoded = count == prompts_.size() && encoded_ && encoded_->input == input && encoded_->x == call.in.x;
    encoded_ = Encoded{input, call.in.x};
    place_rows(work);
    if (groups_)
      run_apart(work, encoded);
    else
      run_together(work, encoded);
  }
}

// All threads run each part, for all chunks together.
void NpuProducts::run_together(const Work& work, bool encoded) {
  const int64_t chunks = std::ssize(work.pieces);
  if (!encoded) encode(work, 0, chunks);
  run_graph(work, 0, chunks);
  add_shadows(work, 0, chunks);
}

// The parts of each chunk are subgraphs. Times are only compared, so that a unit serves where all are alike.
void NpuProducts::run_apart(const Work& work, bool encoded) {
  enum Part { kEncode, kGraph, kShadow };
  std::vector<std::pair<Part, int64_t>> parts;
  std::vector<NpuSubgraph> subgraphs;
  const auto add = [&](Part part, int64_t chunk, bool follows) {
    std::vector<int32_t> after;
    if (follows) after.push_back(static_cast<int32_t>(subgraphs.size()) - 1);
    subgraphs.push_back({"", part == kGraph, 1, std::move(after)});
    parts.emplace_back(part, chunk);
  };
  for (int64_t chunk = 0; chunk < std::ssize(work.pieces); ++chunk) {
    if (!encoded) add(kEncode, chunk, false);
    add(kGraph, chunk, !encoded);
    if (work.matrix.input->shadow) add(kShadow, chunk, true);
  }
  groups_->run(subgraphs, order_, [&](int32_t subgraph) {
    const auto [part, chunk] = parts[static_cast<size_t>(subgraph)];
    if (part == kEncode) encode(work, chunk, chunk + 1);
    if (part == kGraph) run_graph(work, chunk, chunk + 1);
    if (part == kShadow) add_shadows(work, chunk, chunk + 1);
  });
}

// The model's own matrix multiplies the rows, as it does without the hook.
void NpuProducts::own_products(const LinearCall& call, std::span<const Piece> pieces) {
  const Weight& weight = call.in.weight;
  for (const Piece& piece : pieces)
    for (int64_t at = 0; at < piece.count; at += kOwnRows) {
      const int64_t count = std::min(kOwnRows, piece.count - at), first = piece.begin + at;
      const ActivationRows rows =
          encode_activations(kernels_, *pool_, weight.format->activation, call.in.x + first * weight.cols, weight.cols,
                             count, weight.cols, own_rows_.data());
      linear(*pool_, weight, rows, call.y + first * weight.rows, weight.rows);
    }
}

// Finds the rows of the chunks in the pass. Rows that the pass does not have are padding.
void NpuProducts::place_rows(const Work& work) {
  const LinearCall& call = work.call;
  const int64_t rows = std::ssize(work.pieces) * chunk_;
  row_at_.assign(static_cast<size_t>(rows), -1);
  std::fill_n(outputs_.begin(), rows, nullptr);
  for (size_t p = 0; p < work.pieces.size(); ++p) {
    const Piece& piece = work.pieces[p];
    for (int64_t row = piece.begin; row < piece.begin + piece.count; ++row) {
      const size_t at = p * static_cast<size_t>(chunk_) + static_cast<size_t>(places_[static_cast<size_t>(row)].offset);
      row_at_[at] = row;
      outputs_[at] = call.y + row * call.in.weight.rows;
    }
    counts_.padding += chunk_ - piece.count;
  }
  counts_.runs += std::ssize(work.pieces);
  counts_.rows += rows;
}

// Rounds the rows to levels and lists their outliers.
void NpuProducts::encode(const Work& work, int64_t begin, int64_t end) {
  const LinearCall& call = work.call;
  const NpuInputScale& scale = *work.matrix.input;
  const int64_t cols = call.in.weight.cols, stride = int8_input_bytes(cols);
  pool_->parallel_for((end - begin) * chunk_, [&](int64_t i, int worker) {
    const int64_t at = begin * chunk_ + i;
    const auto index = static_cast<size_t>(at);
    int8_t* const levels = levels_.as<int8_t>() + at * stride;
    outliers_[index].clear();
    sums_[index] = 0;
    if (row_at_[index] < 0) {
      std::memset(levels, 0, static_cast<size_t>(stride));
      return;
    }
    Int8Outlier* const found = found_[static_cast<size_t>(worker)].data();
    const Int8InputSum sum =
        int8_.encode({call.in.x + row_at_[index] * cols, cols, scale.scale, levels, scale.shadow ? found : nullptr});
    sums_[index] = sum.sum;
    outliers_[index].assign(found, found + sum.outliers);
  });
}

void NpuProducts::run_graph(const Work& work, int64_t begin, int64_t end) {
  const int64_t stride = int8_input_bytes(work.call.in.weight.cols);
  std::vector<NpuChunk> chunks;
  for (int64_t chunk = begin; chunk < end; ++chunk) {
    const int64_t first = chunk * chunk_;
    chunks.push_back({levels_.as<int8_t>() + first * stride, sums_.data() + first, outputs_.data() + first});
  }
  device_.run(work.graph, chunks);
}

void NpuProducts::add_shadows(const Work& work, int64_t begin, int64_t end) {
  if (!work.matrix.input->shadow) return;
  bool any = false, cold = false;
  for (auto index = static_cast<size_t>(begin * chunk_); index < static_cast<size_t>(end * chunk_); ++index) {
    terms_[index].clear();
    for (const Int8Outlier& outlier : outliers_[index])
      if (const float* column = work.matrix.hot_column(outlier.column))
        terms_[index].push_back({column, outlier.residual});
      else
        cold = true;
    any |= !terms_[index].empty();
    counts_.outliers += std::ssize(outliers_[index]);
  }
  if (any) add_terms(work, begin, end);
  if (cold) add_cold(work, begin, end);
}

// y += the sum of each row's terms.
void NpuProducts::add_terms(const Work& work, int64_t begin, int64_t end) {
  const int64_t outputs = work.call.in.weight.rows;
  pool_->parallel_for((outputs + kStripRows - 1) / kStripRows, [&](int64_t strip, int) {
    const int64_t first = strip * kStripRows, last = std::min(outputs, first + kStripRows);
    for (auto index = static_cast<size_t>(begin * chunk_); index < static_cast<size_t>(end * chunk_); ++index) {
      const std::vector<Int8Term>& terms = terms_[index];
      if (!terms.empty()) int8_.add_columns(terms.data(), std::ssize(terms), first, last, outputs_[index]);
    }
  });
}

// Residuals of channels that the calibration did not find: their columns are decoded from the model's file, some at a
// time in the order of the channels.
void NpuProducts::add_cold(const Work& work, int64_t begin, int64_t end) {
  const auto first_row = static_cast<size_t>(begin * chunk_), last_row = static_cast<size_t>(end * chunk_);
  const int64_t outputs = work.call.in.weight.rows;
  std::vector<int32_t> channels;
  for (size_t index = first_row; index < last_row; ++index)
    for (const Int8Outlier& outlier : outliers_[index])
      if (!work.matrix.hot_column(outlier.column)) channels.push_back(outlier.column);
  counts_.cold += std::ssize(channels);
  std::ranges::sort(channels);
  channels.erase(std::ranges::unique(channels).begin(), channels.end());
  std::vector<float> columns;
  for (size_t first = 0; first < channels.size(); first += kColdColumns) {
    const std::span some = std::span(channels).subspan(first, std::min<size_t>(kColdColumns, channels.size() - first));
    columns.resize(some.size() * static_cast<size_t>(outputs));
    decode_npu_columns(*work.matrix.source, some, *pool_, columns.data());
    for (size_t index = first_row; index < last_row; ++index) {
      terms_[index].clear();
      for (const Int8Outlier& outlier : outliers_[index]) {
        const auto found = std::ranges::lower_bound(some, outlier.column);
        if (found == some.end() || *found != outlier.column) continue;
        terms_[index].push_back({columns.data() + (found - some.begin()) * outputs, outlier.residual});
      }
    }
    add_terms(work, begin, end);
  }
}

}  // namespace millrace
