// Weight parts: products are those of the definition, in double precision, whatever the chunks and threads; a model
// without parts has no working memory for them; what is wrong in a file is named.
#include "tensor/weight_parts.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model_runner.h"
#include "models/blocks/changed_products.h"
#include "models/blocks/part_scratch.h"
#include "tensor/hadamard.h"
#include "test_paths.h"
#include "weight_parts_file.h"

namespace millrace {
namespace {

using namespace testing;
using Values = std::vector<float>;
using Doubles = std::vector<double>;

std::string golden(const std::string& name) {
  return std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/" + name + "/model.gguf";
}

std::vector<TokenId> some_tokens(int64_t count) {
  std::vector<TokenId> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(static_cast<TokenId>(1 + i * 7 % 40));
  return out;
}

Doubles doubles(const ModelFiles& files, const std::string& name) {
  const StoredTensor* stored = files.find(name);
  if (!stored) return {};
  Values out(static_cast<size_t>(stored->tensor.values()));
  stored->tensor.format->decode(stored->tensor.data, out.data(), std::ssize(out));
  return {out.begin(), out.end()};
}

// The definition of tensor/weight_parts.h, from the tensors of the file.
class PlainProduct {
 public:
  PlainProduct(const ModelFiles& files, const std::string& matrix, int64_t cols) : cols_(cols) {
    w_ = doubles(files, matrix + ".weight");
    scale_ = doubles(files, matrix + ".input_scale");
    const auto block = doubles(files, matrix + ".input_hadamard");
    block_ = block.empty() ? 0 : static_cast<int64_t>(block[0]);
    order_ = doubles(files, matrix + ".input_order");
    const auto output_block = doubles(files, matrix + ".output_hadamard");
    output_block_ = output_block.empty() ? 1 : static_cast<int64_t>(output_block[0]);
    output_scale_ = doubles(files, matrix + ".output_scale");
    a_ = doubles(files, matrix + ".low_rank_a");
    b_ = doubles(files, matrix + ".low_rank_b");
    counts_ = doubles(files, matrix + ".sparse_counts");
    columns_ = doubles(files, matrix + ".sparse_columns");
    values_ = doubles(files, matrix + ".sparse_values");
    shift_ = doubles(files, matrix + ".input_shift");
    format_ = doubles(files, matrix + ".input_format");
    index_ = doubles(files, matrix + ".column_index");
    column_weights_ = doubles(files, matrix + ".column_weights");
    bias_ = doubles(files, matrix + ".output_bias");
  }

  Doubles changed(const float* x) const {
    Doubles scaled(x, x + cols_);
    for (size_t c = 0; c < shift_.size(); ++c) scaled[c] -= shift_[c];
    for (size_t c = 0; c < scale_.size(); ++c) scaled[c] *= scale_[c];
    Doubles turned = scaled;
    for (int64_t i = 0; block_ > 0 && i < cols_; ++i) {
      turned[i] = 0;
      for (int64_t j = 0; j < block_; ++j)  // the sign of a Hadamard matrix: the parity of the common bits
        turned[i] += scaled[i / block_ * block_ + j] * (__builtin_popcountll((i % block_) & j) % 2 ? -1 : 1);
      turned[i] /= std::sqrt(static_cast<double>(block_));
    }
    Doubles out = turned;
    for (size_t c = 0; c < order_.size(); ++c) out[c] = turned[static_cast<size_t>(order_[c])];
    round(out);
    return out;
  }

  bool rounds() const { return !format_.empty(); }

  // Row `r` of the stored matrix; `size` gets the sum of the terms' magnitudes.
  double row(int64_t r, const float* x, const Doubles& changed, double* size) const {
    double sum = 0;
    *size = 0;
    const auto add = [&](double term) {
      sum += term;
      *size += std::fabs(term);
    };
    const double output = (output_scale_.empty() ? 1 : output_scale_[static_cast<size_t>(r)]) /
                          std::sqrt(static_cast<double>(output_block_));
    for (int64_t j = 0; !w_.empty() && j < output_block_; ++j) {
      const double* line = w_.data() + (r / output_block_ * output_block_ + j) * cols_;
      const double sign = __builtin_popcountll((r % output_block_) & j) % 2 ? -output : output;
      for (int64_t c = 0; c < cols_; ++c) add(sign * line[c] * changed[c]);
    }
    const int64_t rank = std::ssize(a_) / cols_;
    for (int64_t k = 0; k < rank; ++k)
      for (int64_t c = 0; c < cols_; ++c) add(b_[r * rank + k] * a_[k * cols_ + c] * x[c]);
    int64_t at = 0;
    for (int64_t i = 0; !counts_.empty() && i < r; ++i) at += static_cast<int64_t>(counts_[i]);
    for (int64_t i = 0; !counts_.empty() && i < counts_[r]; ++i, ++at)
      add(values_[at] * x[static_cast<int64_t>(columns_[at])]);
    const int64_t own = std::ssize(index_);
    for (int64_t i = 0; i < own; ++i) add(column_weights_[r * own + i] * x[static_cast<int64_t>(index_[i])]);
    if (!bias_.empty()) add(bias_[r]);
    return sum;
  }

 private:
  // Integers only: input_rounding_test.cc has all numbers.
  void round(Doubles& x) const {
    size_t at = 0;
    for (size_t i = 0; i < format_.size(); i += 5) {
      const auto end = at + static_cast<size_t>(format_[i]);
      const double most = std::ldexp(1.0, static_cast<int>(format_[i + 2])) - 1;
      while (at < end) {
        const size_t group = std::min(end, at + static_cast<size_t>(format_[i + 3]));
        double largest = 0;
        for (size_t c = at; c < group; ++c) largest = std::max(largest, std::fabs(x[c]));
        const double scale = format_[i + 4] * largest / most;
        for (; at < group; ++at) x[at] = scale > 0 ? scale * std::nearbyint(std::clamp(x[at] / scale, -most, most)) : 0;
      }
    }
  }

  int64_t cols_;
  Doubles w_, scale_, order_, a_, b_, counts_, columns_, values_, shift_, format_, index_, column_weights_, bias_;
  Doubles output_scale_;
  int64_t block_ = 0, output_block_ = 1;
};

// Compares every product of a matrix with parts.
struct CompareProducts final : LinearWrapper {
  const Model* model = nullptr;
  const ModelFiles* files = nullptr;
  std::map<LinearId, int64_t> compared;

  // Of the matrix in its stored tensor, and its bias.
  int64_t first_row(const LinearId& id) const {
    if (id.layer < 0) return 0;
    const LayerWeights& layer = model->layer(id.layer);
    if (id.kind == LinearKind::k && layer.k.name == layer.q.name) return layer.q.rows;
    if (id.kind == LinearKind::v && layer.v.name == layer.q.name) return layer.q.rows + layer.k.rows;
    if (id.kind == LinearKind::up && layer.mlp.up.name == layer.mlp.gate.name) return layer.mlp.gate.rows;
    return 0;
  }
  double bias(const LinearId& id, int64_t row) const {
    if (id.layer < 0) return 0;
    const LayerWeights& layer = model->layer(id.layer);
    const std::vector<float>* values = id.kind == LinearKind::q    ? &layer.q_bias
                                       : id.kind == LinearKind::k  ? &layer.k_bias
                                       : id.kind == LinearKind::v  ? &layer.v_bias
                                       : id.kind == LinearKind::up ? &layer.mlp.up_bias
                                                                   : nullptr;
    return values && !values->empty() ? (*values)[static_cast<size_t>(row)] : 0;
  }

  void apply(const LinearCall& call) override {
    const Weight& weight = call.in.weight;
    if (!weight.parts) return;
    const std::string matrix = weight.name.substr(0, weight.name.size() - 7);
    const PlainProduct plain(*files, matrix, weight.cols);
    // A value between two numbers may fall to either one, which differ by a 127th of the row's largest value.
    const double level = plain.rounds() ? 1e-3 : 0;
    const double error = weight.format->activation == Activation::f32 ? 2e-6 + level : 1e-2;
    for (int64_t t = 0; t < call.in.tokens; ++t) {
      const float* x = call.in.x + t * weight.cols;
      const Doubles changed = plain.changed(x);
      for (int64_t r = 0; r < weight.rows; ++r) {
        double size = 0;
        const double want = plain.row(first_row(call.in.id) + r, x, changed, &size) + bias(call.in.id, r);
        ASSERT_NEAR(call.y[t * weight.rows + r], want, error * (size + std::fabs(want)) + 1e-7)
            << weight.name << " row " << r;
      }
    }
    ++compared[call.in.id];
  }
};

struct Parted {
  std::string model;
  std::vector<std::string> matrices;  // of layer 1, and output
};

class WeightPartsOf : public ::testing::TestWithParam<Parted> {
 protected:
  // All kinds of parts, in different combinations.
  PartTensors parts() const {
    auto files = open_model_files(golden(GetParam().model));
    PartTensors out;
    int i = 0;
    for (const std::string& name : GetParam().matrices) {
      const StoredTensor* stored = files->find(name + ".weight");
      EXPECT_NE(stored, nullptr) << name;
      const int64_t rows = stored->tensor.rows(), cols = stored->tensor.cols();
      const int kinds = kKinds[i++ % std::size(kKinds)];
      if (kinds & 1) add_order(out, name, cols);
      if (kinds & 2) add_hadamard(out, name, cols % 16 == 0 ? 16 : 4);
      if (kinds & 4) add_scale(out, name, cols);
      if (kinds & 8) add_low_rank(out, name, rows, cols, 5);
      if (kinds & 16) add_sparse(out, name, rows, cols, 37);
      if (kinds & 32) add_shift(out, name, rows, cols);
      if (kinds & 64) add_columns(out, name, rows, cols);
      if (kinds & 128) add_format(out, name, cols);
      if (kinds & 256) add_output_change(out, name, rows, 4);
    }
    return out;
  }
  static constexpr int kKinds[] = {31 + 256, 8, 1 + 128 + 256, 16 + 64, 6 + 32, 24 + 32, 511, 256, 4 + 128};
};

TEST_P(WeightPartsOf, ProductsFollowTheDefinition) {
  const PartedModel file(golden(GetParam().model), parts());
  auto files = open_model_files(file.path());
  ASSERT_TRUE(files.ok()) << files.error().message;
  auto runner = TestRunner::load(file.path(), {.threads = 2});
  ASSERT_TRUE(runner.ok()) << runner.error().message;
  EXPECT_TRUE((*runner)->model().spec().parts.any);
  CompareProducts compare;
  compare.model = &(*runner)->model();
  compare.files = &*files;
  (*runner)->runner().hooks().add(compare);
  (*runner)->logits(some_tokens(70));  // more than the rows that parts process together
  (*runner)->logits(some_tokens(1));
  EXPECT_GE(compare.compared.size(), GetParam().matrices.size());
  for (const auto& [id, count] : compare.compared) EXPECT_EQ(count, 2) << id.layer;
}

TEST_P(WeightPartsOf, NeitherChunksNorThreadsChangeABit) {
  const PartedModel file(golden(GetParam().model), parts());
  Values first;
  for (int threads : {1, 3}) {
    auto runner = TestRunner::load(file.path(), {.threads = threads});
    ASSERT_TRUE(runner.ok()) << runner.error().message;
    for (int64_t chunk : {0, 9, 1}) {
      const Values logits = (*runner)->logits(some_tokens(70), chunk);
      if (first.empty()) first = logits;
      EXPECT_TRUE(logits == first) << threads << " threads, chunks of " << chunk;
    }
  }
  auto plain = TestRunner::load(golden(GetParam().model), {});
  ASSERT_TRUE(plain.ok());
  EXPECT_FALSE((*plain)->logits(some_tokens(70)) == first);
  EXPECT_FALSE((*plain)->model().spec().parts.any);
  EXPECT_LE((*plain)->context().parts.bytes(), 4096);
}

// More rows than a changed matrix multiplies at once. All streams store the same keys, in the same blocks.
TEST_P(WeightPartsOf, ManyRowsAtOnceChangeNoBit) {
  constexpr size_t kStreams = 3, kTokens = 100;
  static_assert(kStreams * kTokens > kChangedRows);
  const PartedModel file(golden(GetParam().model), parts());
  auto made = TestRunner::load(file.path(), {});
  ASSERT_TRUE(made.ok()) << made.error().message;
  TestRunner& runner = **made;
  const auto tokens = some_tokens(kTokens);
  const Values alone = runner.logits(tokens);
  ModelRunner& all = runner.runner();
  all.start();
  for (size_t stream = 0; stream < kStreams; ++stream) {
    all.begin(runner.blocks(), 0, nullptr);
    for (size_t i = 0; i < kTokens; ++i) all.add(tokens[i], static_cast<int64_t>(i), true);
  }
  all.forward();
  for (size_t stream = 0; stream < kStreams; ++stream)
    EXPECT_TRUE(Values(all.logits(static_cast<int64_t>(stream * kTokens)),
                       all.logits(static_cast<int64_t>((stream + 1) * kTokens))) == alone)
        << stream;
}

INSTANTIATE_TEST_SUITE_P(
    Models, WeightPartsOf,
    ::testing::Values(Parted{"llama",
                             {"blk.1.attn_q", "blk.1.attn_k", "blk.1.attn_v", "blk.1.attn_output", "blk.1.ffn_gate",
                              "blk.1.ffn_up", "blk.1.ffn_down", "output", "blk.0.attn_q"}},
                      Parted{"phi3", {"blk.1.attn_qkv", "blk.1.ffn_up", "blk.1.attn_output"}},
                      Parted{"qwen2", {"blk.1.attn_q", "blk.1.attn_k", "blk.1.ffn_up"}},
                      Parted{"qwen2moe", {"blk.1.attn_v", "blk.1.ffn_up_shexp", "blk.1.ffn_gate_inp"}}),
    [](const auto& one) { return one.param.model; });

// Matrices that are pairs alone, some with a sparse matrix or a bias, beside others that have dense ones.
TEST(FactoredWeights, ProductsFollowTheDefinitionWhateverTheChunksAndThreads) {
  const std::vector<Parted> models = {{"llama",
                                       {"blk.1.attn_q", "blk.1.attn_k", "blk.1.attn_v", "blk.0.attn_k",
                                        "blk.1.ffn_gate", "blk.0.ffn_up", "blk.1.ffn_down", "output"}},
                                      {"phi3", {"blk.1.attn_qkv", "blk.1.ffn_up"}},
                                      {"qwen2", {"blk.1.attn_q", "blk.1.attn_v", "blk.0.attn_output"}}};
  for (const Parted& one : models) {
    auto base = open_model_files(golden(one.model));
    PartTensors parts;
    for (size_t i = 0; i < one.matrices.size(); ++i) {
      const std::string& name = one.matrices[i];
      const Tensor& tensor = base->find(name + ".weight")->tensor;
      add_factored(parts, name, tensor.rows(), tensor.cols(), 3 + static_cast<int64_t>(i));
      if (i % 3 == 1) add_sparse(parts, name, tensor.rows(), tensor.cols(), 37);
      if (i % 3 == 2) add_bias(parts, name, tensor.rows());
    }
    const PartedModel file(golden(one.model), parts);
    auto files = open_model_files(file.path());
    ASSERT_TRUE(files.ok());
    Values first;
    for (int threads : {1, 3}) {
      auto runner = TestRunner::load(file.path(), {.threads = threads});
      ASSERT_TRUE(runner.ok()) << runner.error().message;
      CompareProducts compare;
      compare.model = &(*runner)->model();
      compare.files = &*files;
      if (threads == 1) (*runner)->runner().hooks().add(compare);
      for (int64_t chunk : {0, 9, 1}) {
        const Values logits = (*runner)->logits(some_tokens(70), chunk);
        if (first.empty()) first = logits;
        EXPECT_TRUE(logits == first) << one.model << " " << threads << " threads, chunks of " << chunk;
      }
      if (threads == 1) {
        EXPECT_GE(compare.compared.size(), one.matrices.size());
      }
    }
  }
}

// A block of all rows of a fused matrix: queries, keys and values, or gate and up, are transformed as one.
TEST(FusedOutputs, AreTransformedAsOneWhateverTheChunksAndThreads) {
  auto base = open_model_files(golden("phi3"));
  ASSERT_TRUE(base.ok());
  PartTensors parts;
  for (const std::string name : {"blk.1.attn_qkv", "blk.1.ffn_up", "blk.0.ffn_up"}) {
    const int64_t rows = base->find(name + ".weight")->tensor.rows();
    add_output_change(parts, name, rows, rows);
  }
  add_scale(parts, "blk.1.attn_qkv", base->find("blk.1.attn_qkv.weight")->tensor.cols());
  const PartedModel file(golden("phi3"), parts);
  auto files = open_model_files(file.path());
  ASSERT_TRUE(files.ok());
  Values first;
  for (int threads : {1, 3}) {
    auto runner = TestRunner::load(file.path(), {.threads = threads});
    ASSERT_TRUE(runner.ok()) << runner.error().message;
    const LayerWeights& layer = (*runner)->model().layer(1);
    EXPECT_EQ(layer.k.parts->output.fused, layer.q.rows + layer.k.rows + layer.v.rows);
    EXPECT_EQ(layer.k.parts->output.begin, layer.q.rows);
    CompareProducts compare;
    compare.model = &(*runner)->model();
    compare.files = &*files;
    if (threads == 1) (*runner)->runner().hooks().add(compare);
    for (int64_t chunk : {0, 9, 1}) {
      const Values logits = (*runner)->logits(some_tokens(70), chunk);
      if (first.empty()) first = logits;
      EXPECT_TRUE(logits == first) << threads << " threads, chunks of " << chunk;
    }
    if (threads == 1) {
      EXPECT_EQ(compare.compared.size(), 7u);
    }
  }
}

// The transform is its own inverse, and keeps lengths.
TEST(ChangeInput, HadamardTurnsBack) {
  const Values x = part_values("x", 64, 3);
  Values once(64), twice(64), scratch(64);
  const InputChange change{.hadamard = 32};
  change_input(change, x.data(), 64, scratch.data(), once.data());
  change_input(change, once.data(), 64, scratch.data(), twice.data());
  double before = 0, after = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(twice[i], x[i], 1e-5);
    before += double{x[i]} * x[i];
    after += double{once[i]} * once[i];
  }
  EXPECT_NEAR(after, before, 1e-4);
  EXPECT_NE(once, x);
}

// The outer matrix is no symmetric one: the inputs' transform turns the outputs' back.
TEST(ChangeInput, MixedBlocksTurnBack) {
  const int64_t n = 12 * 8;
  const Values& m = hadamard_matrix(12);
  Values x = part_values("x", n, 3), mixed(static_cast<size_t>(n)), scratch = mixed, back = mixed;
  for (int64_t i = 0; i < n; ++i)  // (M x H) x
    for (int64_t j = 0; j < n; ++j)
      mixed[static_cast<size_t>(i)] += m[static_cast<size_t>(i / 8 * 12 + j / 8)] *
                                       (__builtin_popcountll((i % 8) & j) % 2 ? -1.0f : 1.0f) *
                                       x[static_cast<size_t>(j)] / std::sqrt(static_cast<float>(n));
  change_input({.hadamard = 8, .outer = 12}, mixed.data(), n, scratch.data(), back.data());
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(back[i], x[i], 1e-5);
}

std::string failure_of(const PartTensors& parts, const std::string& base = golden("llama")) {
  const PartedModel file(base, parts);
  auto runner = TestRunner::load(file.path(), {});
  EXPECT_FALSE(runner.ok());
  if (runner.ok()) return "";
  std::string message = runner.error().message;
  if (message.starts_with(file.path())) message.erase(0, file.path().size());
  const size_t offset = message.find(" at offset ");
  if (offset != std::string::npos) message.erase(offset, message.find(' ', offset + 11) - offset);
  return message;
}

TEST(WeightParts, SaysWhatIsWrong) {
  auto files = open_model_files(golden("llama"));
  ASSERT_TRUE(files.ok());
  const std::string q = "blk.0.attn_q";
  const int64_t cols = files->find(q + ".weight")->tensor.cols(), rows = files->find(q + ".weight")->tensor.rows();
  const auto edited = [&](auto add, auto edit) {
    PartTensors parts;
    add(parts);
    edit(parts);
    return failure_of(parts);
  };
  const auto scale = [&](PartTensors& to) { add_scale(to, q, cols); };
  const auto order = [&](PartTensors& to) { add_order(to, q, cols); };
  const auto pair = [&](PartTensors& to) { add_low_rank(to, q, rows, cols, 3); };
  const auto sparse = [&](PartTensors& to) { add_sparse(to, q, rows, cols, 11); };
  EXPECT_EQ(edited(scale,
                   [&](PartTensors& p) {
                     p[q + ".input_scale"] = {{4}, {1, 1, 1, 1}};
                   }),
            fmt::format(": tensor blk.0.attn_q.input_scale has 4 values, must have {}", cols));
  EXPECT_EQ(edited(scale, [&](PartTensors& p) { p[q + ".input_scale"].values[1] = NAN; }),
            ": tensor blk.0.attn_q.input_scale holds NaN or infinity");
  EXPECT_EQ(edited(order, [&](PartTensors& p) { p[q + ".input_order"].values[0] = 1.5f; }),
            fmt::format(": tensor blk.0.attn_q.input_order holds 1.5, must be whole numbers from 0 to {}", cols - 1));
  EXPECT_EQ(edited(order, [&](PartTensors& p) { p[q + ".input_order"].values[0] = -1; }),
            fmt::format(": tensor blk.0.attn_q.input_order holds -1, must be whole numbers from 0 to {}", cols - 1));
  EXPECT_EQ(edited(order, [&](PartTensors& p) { add_hadamard(p, q, 6); }),
            fmt::format(": tensor blk.0.attn_q.input_hadamard has a block of 6, must be a power of two that divides {} "
                        "columns",
                        cols));
  for (int64_t block : {int64_t{3}, 2 * rows})
    EXPECT_EQ(
        edited(order, [&](PartTensors& p) { add_output_change(p, q, rows, block); }),
        fmt::format(": tensor blk.0.attn_q.output_hadamard has a block of {}, must be a power of two that divides "
                    "{} rows",
                    block, rows));
  EXPECT_EQ(edited(order, [&](PartTensors& p) { add_output_change(p, q, rows + 1, 2); }),
            fmt::format(": tensor blk.0.attn_q.output_scale has {} values, must have {}", rows + 1, rows));
  EXPECT_EQ(edited(pair, [&](PartTensors& p) { p.erase(q + ".low_rank_b"); }),
            ": tensor blk.0.attn_q.low_rank_b is missing");
  EXPECT_EQ(edited(pair,
                   [&](PartTensors& p) {
                     p[q + ".low_rank_b"].dims = {3, rows};
                   }),
            fmt::format(": tensor blk.0.attn_q.low_rank_b has shape [3, {}], must have [{}, 3]", rows, rows));
  EXPECT_EQ(edited(sparse, [&](PartTensors& p) { p.erase(q + ".sparse_counts"); }),
            ": tensor blk.0.attn_q.sparse_counts is missing");
  EXPECT_EQ(
      edited(sparse, [&](PartTensors& p) { p[q + ".sparse_columns"].values[0] = static_cast<float>(cols); }),
      fmt::format(": tensor blk.0.attn_q.sparse_columns holds {}, must be whole numbers from 0 to {}", cols, cols - 1));
  EXPECT_EQ(edited(sparse, [&](PartTensors& p) { p[q + ".sparse_columns"].values[1] = 0; }),
            ": tensor blk.0.attn_q.sparse_columns is not in ascending order in row 0");
  const auto columns = [&](PartTensors& to) { add_columns(to, q, rows, cols); };
  EXPECT_EQ(edited(columns, [&](PartTensors& p) { p.erase(q + ".column_weights"); }),
            ": tensor blk.0.attn_q.column_weights is missing");
  EXPECT_EQ(edited(columns, [&](PartTensors& p) { p[q + ".column_index"].values[1] = 0; }),
            ": tensor blk.0.attn_q.column_index is not in ascending order");
  EXPECT_EQ(
      edited(columns, [&](PartTensors& p) { p[q + ".column_index"].values.back() = static_cast<float>(cols); }),
      fmt::format(": tensor blk.0.attn_q.column_index holds {}, must be whole numbers from 0 to {}", cols, cols - 1));
  EXPECT_EQ(edited(columns,
                   [&](PartTensors& p) {
                     p[q + ".output_bias"] = {{1}, {0}};
                   }),
            fmt::format(": tensor blk.0.attn_q.output_bias has 1 values, must have {}", rows));
  const auto format = [&](std::vector<float> values) {
    PartTensors parts;
    parts[q + ".input_format"] = {{1, std::ssize(values)}, values};
    return failure_of(parts);
  };
  const auto width = static_cast<float>(cols);
  EXPECT_EQ(format({width, 0, 7, width}),
            fmt::format(": tensor blk.0.attn_q.input_format has shape [1, 4], must have [segments, 5], at most {} "
                        "segments",
                        cols));
  EXPECT_EQ(format({width - 1, 0, 7, width, 1}),
            fmt::format(": tensor blk.0.attn_q.input_format is of {} columns, must be of {}", cols - 1, cols));
  EXPECT_EQ(format({width, 0, 8, width, 1}),
            fmt::format(": tensor blk.0.attn_q.input_format has a segment of {} columns, 0 exponent and 8 mantissa "
                        "bits, groups of {} and clip 1, which is none",
                        cols, cols));
  EXPECT_EQ(format({width, 0.5f, 7, width, 1}),
            ": tensor blk.0.attn_q.input_format holds 0.5, must be whole numbers but for the clip");
  EXPECT_EQ(edited(scale, [&](PartTensors& p) { p["blk.0.attn_w.input_scale"] = p[q + ".input_scale"]; }),
            ": tensor blk.0.attn_w.input_scale is a part of blk.0.attn_w.weight, which the file does not have");
  const auto factored = [&](PartTensors& to) { add_factored(to, q, rows, cols, 3); };
  EXPECT_EQ(edited(factored, [&](PartTensors& p) { p.erase(q + ".low_rank_a"); }),
            ": tensor blk.0.attn_q.low_rank_a is missing");
  EXPECT_EQ(edited(factored, [&](PartTensors& p) { p.erase(q + ".low_rank_b"); }),
            ": tensor blk.0.attn_q.weight is missing");
  EXPECT_EQ(edited(factored, [&](PartTensors& p) { add_scale(p, q, cols); }),
            ": tensor blk.0.attn_q.input_scale is a part of blk.0.attn_q.weight, which the file does not have");
  EXPECT_EQ(edited(factored,
                   [&](PartTensors& p) {
                     p[q + ".output_bias"] = {{2}, {1, 1}};
                   }),
            fmt::format(": tensor blk.0.attn_q.output_bias has 2 values, must have {}", rows));
  PartTensors norm;
  add_factored(norm, "blk.0.attn_norm", 1, cols, 1);
  EXPECT_EQ(failure_of(norm), ": tensor blk.0.attn_norm.weight is missing; only matrices can be factored");
  PartTensors table;
  add_factored(table, "token_embd", files->find("token_embd.weight")->tensor.rows(), cols, 3);
  EXPECT_EQ(failure_of(table), ": token_embd.weight: an embedding table cannot have weight parts");
  PartTensors experts;
  auto mixtral = open_model_files(golden("mixtral"));
  const Tensor& stacked = mixtral->find("blk.0.ffn_up_exps.weight")->tensor;
  add_factored(experts, "blk.0.ffn_up_exps", stacked.rows(), stacked.cols(), 3);
  EXPECT_EQ(failure_of(experts, golden("mixtral")),
            ": tensor blk.0.ffn_up_exps.low_rank_b: a stack of experts cannot be factored");
  PartTensors embedding;
  add_scale(embedding, "token_embd", files->find("token_embd.weight")->tensor.cols());
  EXPECT_EQ(failure_of(embedding), ": token_embd.weight: an embedding table cannot have weight parts");
  PartTensors stack;
  add_scale(stack, "blk.0.ffn_up_exps", cols);
  EXPECT_EQ(failure_of(stack, golden("mixtral")),
            ": tensor blk.0.ffn_up_exps.weight: a stack of experts cannot have weight parts");
}

TEST(WeightParts, AreNotConverted) {
  PartTensors parts;
  add_scale(parts, "blk.0.attn_q", open_model_files(golden("llama"))->find("blk.0.attn_q.weight")->tensor.cols());
  const PartedModel file(golden("llama"), parts);
  auto input = open_conversion_input(file.path(), "");
  ASSERT_TRUE(input.ok());
  for (bool to_gguf : {false, true}) {
    ConvertReport report;
    auto plan = plan_conversion(*input, to_gguf, {}, report);
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.error().kind, ErrorKind::unsupported);
    EXPECT_EQ(plan.error().message,
              file.path() +
                  ": tensor blk.0.attn_q.input_scale: matrices with weight parts cannot be converted; start from the "
                  "file that `millrace compress` read");
  }
}

}  // namespace
}  // namespace millrace
