#include "compress/matrix_work.h"

#include <fmt/format.h>

#include <algorithm>

#include "compress/matrix_parts.h"
#include "compress/output/table_format.h"
#include "models/convert/format_choice.h"

namespace millrace {

std::vector<LinearId> TensorWork::ids() const {
  std::vector<LinearId> out(static_cast<size_t>(experts), place.id);
  for (size_t e = 0; place.stacked && e < out.size(); ++e) out[e].expert = static_cast<int32_t>(e);
  return out;
}

int64_t TensorWork::statistics_bytes(uint32_t needs) const {
  int64_t bytes = cols * 8;
  if (needs & kInputSums) bytes += cols * 8;
  if (needs & kInputMagnitudes) bytes += cols * 8;
  if (needs & kInputRanges) bytes += cols * 8;
  if (needs & kInputSamples) bytes += cols * 4 * LinearStatistics::kMaxSamples;
  return bytes + (needs & kSecondMoments ? SecondMoments::bytes(cols) : 0);
}

// Values, original and difference of floats; rows and a second rounding of them; what the figures take.
int64_t TensorWork::working_bytes(uint32_t needs, int64_t row_bytes) const {
  const int64_t figures = SecondMoments::bytes(cols) + SecondMoments::scratch_bytes(cols);
  return rows * (cols * 3 * 4 + 2 * row_bytes) + (needs & kSecondMoments ? figures : 0);
}

void TensorWork::reserve(const LinearId& id, uint32_t needs, StatisticsMap& statistics) const {
  const auto [at, made] = statistics.try_emplace(id);
  if (!made) return;
  at->second.id = id;
  at->second.squares.resize(static_cast<size_t>(cols));
  if (needs & kInputSamples) at->second.samples.reserve(static_cast<size_t>(cols * LinearStatistics::kMaxSamples));
  if (needs & kSecondMoments) at->second.moments = SecondMoments(cols);
}

Result<std::vector<TensorWork>> plan_works(const ConversionPlan& plan, const ArchSpec& spec) {
  std::vector<TensorWork> works;
  const bool tied = is_head_tied(plan);
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const OutputTensor& tensor = plan.tensors[i];
    const auto place = linear_place(tensor.name, tied);
    if (!place || tensor.dims.size() < 2 || tensor.transpose) continue;
    TensorWork work{.tensor = i, .place = *place};
    work.layer = place->id.layer < 0 ? spec.layer_count() : place->id.layer;
    work.experts = place->stacked ? tensor.dims.front() : 1;
    work.cols = tensor.dims.back();
    int64_t rows = 1;
    for (size_t d = 0; d + 1 < tensor.dims.size(); ++d) rows *= tensor.dims[d];
    work.rows = rows / work.experts;
    if (work.layer > spec.layer_count() || (place->stacked && work.experts != spec.moe.experts))
      return Error::corrupt(fmt::format("tensor {}: the model has {} layers and {} experts", tensor.name,
                                        spec.layer_count(), spec.moe.experts));
    works.push_back(work);
  }
  std::ranges::sort(works, {}, [](const TensorWork& work) { return std::pair(work.layer, work.tensor); });
  return works;
}

PassMatrix MatrixWork::shell(const OutputTensor& tensor, const TensorWork& work, const LinearId& id) {
  PassMatrix matrix;
  matrix.name = work.place.stacked ? fmt::format("{}[{}]", tensor.name, id.expert) : tensor.name;
  matrix.id = id;
  matrix.rows = work.rows;
  matrix.cols = work.cols;
  matrix.format = tensor.format;
  if (work.place.stacked) matrix.no_parts = "a stack of experts cannot have weight parts";
  if (tensor.name == "token_embd.weight") matrix.no_parts = "an embedding table cannot have weight parts";
  return matrix;
}

std::string MatrixWork::format_name(const PassMatrix& matrix) {
  const PassParts& parts = matrix.parts;
  if (parts.factored) return fmt::format("{} pair", parts.low_rank_format ? parts.low_rank_format->name : "f16");
  if (matrix.has_codebook()) return fmt::format("codebook of {} bits a weight", matrix.codebook.bits_per_value());
  return std::string(matrix.format->name);
}

Result<MatrixWork> MatrixWork::read(const OutputTensor& tensor, const TensorWork& work, const LinearId& id,
                                    ThreadPool& pool) {
  MatrixWork out;
  out.matrix_ = shell(tensor, work, id);
  PassMatrix& matrix = out.matrix_;
  const int64_t expert = work.place.stacked ? id.expert : 0;
  matrix.values.resize(static_cast<size_t>(work.rows * work.cols));
  // A stack is one stored tensor, or one for each expert.
  const bool separate = tensor.parts.size() > 1;
  const SourceTensor& part = tensor.parts[separate ? static_cast<size_t>(expert) : 0];
  const int64_t first = separate ? 0 : expert * work.rows;
  if (expert == 0 || separate) MILLRACE_TRY_VOID(part.check_finite());
  if (part.transposed)
    part.read_rows(first, work.rows, matrix.values.data());  // reads the whole tensor at once
  else
    pool.parallel_for(work.rows,
                      [&](int64_t r, int) { part.read_rows(first + r, 1, matrix.values.data() + r * work.cols); });
  out.original_ = matrix.values;
  out.report_.name = matrix.name;
  out.report_.rows = matrix.rows;
  out.report_.cols = matrix.cols;
  return out;
}

std::vector<uint8_t> MatrixWork::rounded(const std::vector<float>& values, ThreadPool& pool) const {
  const Format& format = *matrix_.format;
  const int64_t row_bytes = format.row_bytes(matrix_.cols);
  std::vector<uint8_t> out(static_cast<size_t>(matrix_.rows * row_bytes));
  pool.parallel_for(matrix_.rows, [&](int64_t r, int) {
    format.encode(values.data() + r * matrix_.cols, out.data() + r * row_bytes, matrix_.cols);
  });
  return out;
}

std::vector<float> MatrixWork::decoded(const std::vector<uint8_t>& rows, ThreadPool& pool) const {
  const Format& format = *matrix_.format;
  std::vector<float> out(static_cast<size_t>(matrix_.rows * matrix_.cols));
  pool.parallel_for(matrix_.rows, [&](int64_t r, int) {
    format.decode(rows.data() + r * format.row_bytes(matrix_.cols), out.data() + r * matrix_.cols, matrix_.cols);
  });
  return out;
}

// The sums of the squared outputs of these rows on the inputs of each of the statistics. The moments of the rows are as
// large as those of the inputs, so there is one of them at a time.
Result<MatrixWork::Outputs> MatrixWork::squared_outputs(const std::vector<float>& rows, const KernelTable& table,
                                                        ThreadPool& pool) const {
  SecondMoments moments(matrix_.cols);
  MILLRACE_TRY_VOID(moments.add(rows.data(), matrix_.rows, table, pool));
  Outputs out;
  if (seen_) out.seen = trace_product(moments, seen_->moments);
  if (held_out_) out.held_out = trace_product(moments, held_out_->moments);
  return out;
}

// |(W' - W) X|^2 over `all`, the sum of the squared outputs. A bias that the original does not have changes them, too.
Result<MatrixWork::Outputs> MatrixWork::output_errors(std::vector<float> change, const std::vector<float>& bias,
                                                      const Outputs& all, const KernelTable& table,
                                                      ThreadPool& pool) const {
  for (size_t i = 0; i < change.size(); ++i) change[i] -= original_[i];
  MILLRACE_TRY(const Outputs changed, squared_outputs(change, table, pool));
  const auto by_bias = [&](const LinearStatistics& statistics) {
    double out = 0;
    for (size_t r = 0; r < bias.size(); ++r) {
      double sum = 0;  // of the changes of this output
      for (size_t c = 0; c < statistics.sums.size(); ++c)
        sum += change[r * statistics.sums.size() + c] * statistics.sums[c];
      out += bias[r] * (2 * sum + static_cast<double>(statistics.rows) * bias[r]);
    }
    return out;
  };
  Outputs out{.seen = -1, .held_out = -1};
  if (seen_) out.seen = all.seen > 0 ? (changed.seen + by_bias(*seen_)) / all.seen : 0;
  if (held_out_) out.held_out = all.held_out > 0 ? (changed.held_out + by_bias(*held_out_)) / all.held_out : 0;
  return out;
}

Result<void> MatrixWork::finish(const LinearStatistics& statistics, const LinearStatistics* held_out,
                                const KernelTable& table, ThreadPool& pool) {
  const PassParts& parts = matrix_.parts;
  if (matrix_.encoded.empty() && !parts.factored) {
    for (size_t i = 0; i < matrix_.kept.size(); ++i)
      if (!matrix_.kept[i]) matrix_.values[i] = 0;
    matrix_.encoded = rounded(matrix_.values, pool);
  }
  report_.calibration_rows = statistics.rows;
  std::vector<float> values(static_cast<size_t>(matrix_.rows * matrix_.cols));
  if (!parts.factored)
    pool.parallel_for(matrix_.rows, [&](int64_t r, int) { matrix_.decode_row(r, values.data() + r * matrix_.cols); });
  report_.format = format_name(matrix_);
  if (!parts.factored)
    report_.zeros = static_cast<double>(std::ranges::count(values, 0.0f)) / static_cast<double>(values.size());
  apply_parts(matrix_, values, pool);
  double change = 0, all = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double square = statistics.squares[i % static_cast<size_t>(matrix_.cols)];
    const double difference = static_cast<double>(values[i]) - original_[i];
    change += square * difference * difference;
    all += square * original_[i] * original_[i];
  }
  report_.weighted_error = all > 0 ? change / all : 0;
  if (held_out) report_.held_out_rows = held_out->rows;
  seen_ = statistics.moments.columns() > 0 ? &statistics : nullptr;
  held_out_ = report_.held_out_rows > 0 ? held_out : nullptr;
  if (!seen_ && !held_out_) return {};
  MILLRACE_TRY(const Outputs outputs, squared_outputs(original_, table, pool));
  MILLRACE_TRY(
      const Outputs stored,
      output_errors(std::move(values), parts.factored ? parts.bias : std::vector<float>(), outputs, table, pool));
  report_.output_error = stored.seen;
  report_.held_out_error = stored.held_out;
  if (matrix_.has_codebook()) return {};  // there is no plain rounding
  MILLRACE_TRY(const Outputs plain, output_errors(decoded(rounded(original_, pool), pool), {}, outputs, table, pool));
  report_.rounded_output_error = plain.seen;
  report_.rounded_held_out_error = plain.held_out;
  return {};
}

}  // namespace millrace
