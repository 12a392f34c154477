// TensorGPT (Xu et al., 2023, "TensorGPT: Efficient Compression of the Embedding Layer in LLMs based on the
// Tensor-Train Decomposition"): each row of the embedding table becomes a tensor train of its own
// (tensor/tensor_train.h), and a lookup multiplies its cores. The cores come from the TT-SVD (Oseledets, 2011): with
// the row as an array of k modes, the left singular vectors of the matrix [rank before x mode, all later modes] are a
// core, and what they leave of it is the array for the next one. With full ranks nothing is lost; else the squared
// error is the sum of all squared singular values that were dropped.
//
// Only lookups can use the cores. A head that is tied to the table gets the table as a matrix of its own.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compress/factories.h"
#include "compress/factorizers/tensor_train_svd.h"
#include "compress/plan_edits.h"
#include "compress/structural_pass.h"
#include "models/tensor_train_loader.h"

namespace millrace {
namespace {

constexpr const char* kOutputName = "output.weight";

class TensorGpt final : public StructuralPass {
 public:
  TensorGpt(int modes, int64_t rank, const Format* format) : modes_(modes), rank_(rank), format_(format) {}

  uint32_t needs() const override { return kNoStatistics; }

  Result<void> reshape(StructuralWork& work) override {
    MILLRACE_TRY(OutputTensor* const table, find_output(work.plan, "token_embd.weight"));
    const int64_t width = work.spec.width, vocab = work.spec.vocab;
    if (table->transpose || table->dims != std::vector{vocab, width})
      return Error::unsupported("--pass tensorgpt: token_embd.weight is not stored as one row for each token");
    const TensorTrain train = tensor_train_shape(width, modes_, rank_);
    if (train.modes < 2 || train.values() >= width)
      return Error::user(
          fmt::format("--pass tensorgpt: cores of rank {} for {} modes of {} have {} values, no fewer than the {} of a "
                      "row; give a smaller rank",
                      rank_, train.modes, sizes_text(train), train.values(), width));
    if (train.values() % format_->block_values != 0)
      return Error::user(
          fmt::format("--pass tensorgpt: format '{}': the {} values of a row's cores are not whole "
                      "blocks of {}; use f16, or another rank",
                      format_->name, train.values(), format_->block_values));
    const int64_t bytes = vocab * (width + train.values()) * static_cast<int64_t>(sizeof(float));
    MILLRACE_TRY(const MemoryHold hold, MemoryHold::take(work.accounts, "embedding table", bytes, "raise --memory"));
    for (const SourceTensor& part : table->parts) MILLRACE_TRY_VOID(part.check_finite());
    store(work, *table, train);
    return {};
  }

 private:
  static std::string sizes_text(const TensorTrain& train) {
    return fmt::format("{}", fmt::join(train.sizes.begin(), train.sizes.begin() + train.modes, "x"));
  }

  void store(StructuralWork& work, OutputTensor& table, const TensorTrain& train) const {
    const std::vector<float> rows = values_of(table, work.pool);
    const int64_t width = train.width(), vocab = std::ssize(rows) / width, values = train.values();
    std::vector<float> cores(static_cast<size_t>(vocab * values));
    std::vector<double> errors(static_cast<size_t>(vocab)), squares(errors);
    work.pool.parallel_for(vocab, [&](int64_t r, int) {
      const float* row = rows.data() + r * width;
      errors[static_cast<size_t>(r)] = tensor_train_svd(train, row, cores.data() + r * values);
      for (int64_t i = 0; i < width; ++i) squares[static_cast<size_t>(r)] += static_cast<double>(row[i]) * row[i];
    });
    const double all = std::accumulate(squares.begin(), squares.end(), 0.0);
    const double dropped = std::accumulate(errors.begin(), errors.end(), 0.0);
    work.report.push_back({"token_embd.weight", PassRow{"factored",
                                                        "into cores of " + sizes_text(train),
                                                        {{"values_per_row", static_cast<double>(values)},
                                                         {"dropped", all > 0 ? dropped / all : 0}}}});
    OutputTensor head = table, shape = table;
    const bool tied = !find_output(work.plan, kOutputName).ok();
    table.format = format_;
    replace_values(table, vocab, values, std::move(cores));
    shape.name = kTensorTrain;
    shape.format = find_format("f32");
    std::vector<float> numbers(train.sizes.begin(), train.sizes.begin() + train.modes);
    numbers.insert(numbers.end(), train.ranks.begin(), train.ranks.begin() + train.modes);
    replace_values(shape, 2, train.modes, std::move(numbers));
    work.plan.tensors.push_back(std::move(shape));
    if (!tied) return;
    head.name = kOutputName;
    work.plan.tensors.push_back(std::move(head));
  }

  int modes_;
  int64_t rank_;
  const Format* format_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_tensorgpt_pass(const OptionValues& options) {
  const Format* format = find_format(options.text("format"));
  if (!format || format->gguf_type < 0)
    return Error::user(
        fmt::format("format '{}': must be a format that GGUF files can have, such as f16", options.text("format")));
  return std::unique_ptr<Pass>(
      std::make_unique<TensorGpt>(static_cast<int>(options.integer("modes")), options.integer("rank"), format));
}

}  // namespace millrace
