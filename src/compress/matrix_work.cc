#include "compress/matrix_work.h"

#include <fmt/format.h>

#include <algorithm>

#include "compress/matrix_parts.h"
#include "models/convert/format_choice.h"

namespace millrace {
namespace {

bool is_head_tied(const ConversionPlan& plan) {
  return std::ranges::none_of(plan.tensors, [](const OutputTensor& t) { return t.name == "output.weight"; });
}

}  // namespace

std::vector<LinearId> TensorWork::ids() const {
  std::vector<LinearId> out(static_cast<size_t>(experts), place.id);
  for (size_t e = 0; place.stacked && e < out.size(); ++e) out[e].expert = static_cast<int32_t>(e);
  return out;
}

int64_t TensorWork::statistics_bytes(uint32_t needs) const {
  return cols * 8 + (needs & kSecondMoments ? SecondMoments::bytes(cols) : 0);
}

// Values, original and difference of floats; rows and a second rounding of them; what the figures take.
int64_t TensorWork::working_bytes(uint32_t needs) const {
  const int64_t figures = SecondMoments::bytes(cols) + SecondMoments::scratch_bytes(cols);
  return rows * cols * (3 * 4 + 2 * 4) + (needs & kSecondMoments ? figures : 0);
}

void TensorWork::reserve(const LinearId& id, uint32_t needs, StatisticsMap& statistics) const {
  const auto [at, made] = statistics.try_emplace(id);
  if (!made) return;
  at->second.id = id;
  at->second.squares.resize(static_cast<size_t>(cols));
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

Result<MatrixWork> MatrixWork::read(const OutputTensor& tensor, const TensorWork& work, const LinearId& id,
                                    ThreadPool& pool) {
  MatrixWork out;
  PassMatrix& matrix = out.matrix_;
  const int64_t expert = work.place.stacked ? id.expert : 0;
  matrix.name = work.place.stacked ? fmt::format("{}[{}]", tensor.name, expert) : tensor.name;
  matrix.id = id;
  matrix.rows = work.rows;
  matrix.cols = work.cols;
  matrix.format = tensor.format;
  if (work.place.stacked) matrix.no_parts = "a stack of experts cannot have weight parts";
  if (tensor.name == "token_embd.weight") matrix.no_parts = "an embedding table cannot have weight parts";
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
  out.report_.format = matrix.format->name;
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

// |(W' - W) X|^2 over the sum of the squared outputs.
Result<double> MatrixWork::output_error(std::vector<float> change, const LinearStatistics& statistics,
                                        const KernelTable& table, ThreadPool& pool) const {
  for (size_t i = 0; i < change.size(); ++i) change[i] -= original_[i];
  SecondMoments changes(matrix_.cols), weights(matrix_.cols);
  MILLRACE_TRY_VOID(changes.add(change.data(), matrix_.rows, table, pool));
  MILLRACE_TRY_VOID(weights.add(original_.data(), matrix_.rows, table, pool));
  const double outputs = trace_product(weights, statistics.moments);
  return outputs > 0 ? trace_product(changes, statistics.moments) / outputs : 0;
}

Result<void> MatrixWork::finish(const LinearStatistics& statistics, const KernelTable& table, ThreadPool& pool) {
  if (matrix_.encoded.empty()) {
    for (size_t i = 0; i < matrix_.kept.size(); ++i)
      if (!matrix_.kept[i]) matrix_.values[i] = 0;
    matrix_.encoded = rounded(matrix_.values, pool);
  }
  report_.calibration_rows = statistics.rows;
  std::vector<float> values(static_cast<size_t>(matrix_.rows * matrix_.cols));
  pool.parallel_for(matrix_.rows, [&](int64_t r, int) { matrix_.decode_row(r, values.data() + r * matrix_.cols); });
  if (matrix_.has_codebook())
    report_.format = fmt::format("codebook of {} bits a weight", matrix_.codebook.bits_per_value());
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
  if (statistics.moments.columns() == 0) return {};
  MILLRACE_TRY(report_.output_error, output_error(std::move(values), statistics, table, pool));
  if (matrix_.has_codebook()) return {};  // there is no plain rounding
  MILLRACE_TRY(report_.rounded_output_error,
               output_error(decoded(rounded(original_, pool), pool), statistics, table, pool));
  return {};
}

}  // namespace millrace
