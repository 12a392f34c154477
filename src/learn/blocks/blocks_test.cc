// Each block of the training pass against differences: for random factors r, the sum of r times a block's output must
// change along the block's input and each of its weights as the gradients say. Factors of products are exact, so that
// differences see the gradient and not the rounding.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "learn/blocks/attention.h"
#include "learn/blocks/head.h"
#include "learn/blocks/mixture.h"

namespace millrace {
namespace {

constexpr int64_t kBlockTokens = 150, kBlockRows = 192, kBlockWidth = 64;

ArchSpec block_spec(HiddenActivation activation, int64_t experts) {
  ArchSpec spec;
  spec.vocab = 96;
  spec.context = 256;
  spec.width = kBlockWidth;
  spec.heads = 2;
  spec.kv_heads = 1;
  spec.activation = activation;
  spec.moe.experts = experts;
  spec.hidden = spec.moe.hidden = 32;
  complete_llama(spec, 1, 10000);
  return spec;
}

std::vector<float> block_values(uint64_t seed, int64_t count) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(static_cast<size_t>(count));
  for (float& value : out) value = normal(random);
  return out;
}

double block_sum(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

// One layer's blocks over one batch, with exact factors and two threads.
struct BlockBench {
  explicit BlockBench(HiddenActivation activation = HiddenActivation::silu, int64_t experts = 0)
      : model(block_spec(activation, experts), 3), pool(2), work(model, pool, exact_training_kernels()) {
    for (float& weight : model.weights()) weight *= 1.25f;  // norms too
    x = block_values(1, kBlockRows * kBlockWidth);
    factors = block_values(2, kBlockRows * kBlockWidth);
    work.norm_gradients.resize(static_cast<size_t>(kBlockRows / kLabChunk * kBlockWidth));
    documents.spans = {{0, 90}, {90, 60}};
    documents.tokens = kBlockTokens;
    documents.positions.assign(kBlockRows, 0);
    for (const auto& span : documents.spans)
      for (int64_t i = 0; i < span.length; ++i)
        documents.positions[static_cast<size_t>(span.start + i)] = static_cast<int32_t>(i);
    std::fill(factors.begin() + kBlockTokens * kBlockWidth, factors.end(), 0.0f);
  }
  const LabLayerTensors& tensors() const { return model.layers()[0]; }
  const LayerSpec& layer() const { return model.spec().layers[0]; }

  LabModel model;
  ThreadPool pool;
  LabWorkspace<float> work;
  LabDocuments documents;
  std::vector<float> x, factors;  // [kBlockRows, kBlockWidth]
};

// `value` computes the sum from the bench's x and weights. `d_x` is its gradient by x, the model's gradient that by the
// weights of `tensors`.
void expect_gradients(BlockBench& bench, const std::function<double()>& value, const std::vector<float>& d_x,
                      const std::vector<const LabTensor*>& tensors) {
  const auto check = [&](std::vector<float>& at, int64_t offset, const std::vector<float>& gradient,
                         const std::string& name) {
    double squares = 0;
    for (float one : gradient) squares += static_cast<double>(one) * static_cast<double>(one);
    ASSERT_GT(squares, 0) << name;
    const double step = 0.01 / std::sqrt(squares);  // moves by 0.01 along the gradient
    const std::vector<float> before = at;
    const auto moved = [&](double by) {
      for (size_t i = 0; i < gradient.size(); ++i)
        at[static_cast<size_t>(offset) + i] += static_cast<float>(by) * gradient[i];
      const double sum = value();
      at = before;
      return sum;
    };
    EXPECT_NEAR((moved(step) - moved(-step)) / (2 * step) / squares, 1.0, 0.01) << name;
  };
  check(bench.x, 0, d_x, "x");
  for (const LabTensor* tensor : tensors) {
    const auto from = bench.model.gradient().begin() + tensor->offset;
    check(bench.model.weights(), tensor->offset, {from, from + tensor->rows * tensor->columns}, tensor->name);
  }
}

TEST(LabBlocks, NormHasItsGradient) {
  BlockBench bench;
  const LabNorm<float> norm(bench.tensors().mlp_norm, 1e-5f);
  std::vector<float> out(bench.x.size()), d_x(bench.x.size());
  const auto value = [&] {
    norm.forward(bench.work, bench.x.data(), kBlockRows, out.data());
    return block_sum(out, bench.factors);
  };
  bench.work.in_chunks(kBlockRows, [&](LabChunk chunk) {
    const int64_t at = chunk.row() * kBlockWidth;
    norm.begin_chunk(bench.work, chunk);
    norm.backward(bench.work, chunk, bench.x.data() + at, bench.factors.data() + at, kLabChunk, d_x.data() + at);
  });
  norm.add_gradient(bench.work, kBlockRows / kLabChunk);
  expect_gradients(bench, value, d_x, {&bench.tensors().mlp_norm});
}

TEST(LabBlocks, LinearHasItsGradient) {
  BlockBench bench;
  LabLinear<float> linear(bench.tensors().out);
  std::vector<float> out(bench.x.size()), d_x(bench.x.size());
  const auto value = [&] {
    linear.pack(bench.work);
    for (int64_t at = 0; at < std::ssize(out); at += kLabChunk * kBlockWidth)
      linear.forward(bench.work, bench.x.data() + at, out.data() + at);
    return block_sum(out, bench.factors);
  };
  value();
  linear.reserve(bench.work.factors[0]);
  bench.work.in_slices(
      kBlockRows,
      [&](LabChunk chunk) {
        const int64_t at = chunk.row() * kBlockWidth;
        linear.keep(bench.work, bench.factors.data() + at, bench.x.data() + at, chunk, bench.work.factors[0]);
        linear.backward(bench.work, bench.factors.data() + at, d_x.data() + at);
      },
      [&](int64_t chunks) { linear.add_gradient(bench.work, bench.work.factors[0], chunks); });
  expect_gradients(bench, value, d_x, {&bench.tensors().out});
}

TEST(LabBlocks, AttentionHasItsGradient) {
  BlockBench bench;
  const LabRotations rotations = make_rotations(bench.model.spec().ropes[0], bench.model.spec().context);
  LabAttention<float> attention(bench.layer(), bench.tensors(), rotations);
  const int64_t chunk_values = kLabChunk * kBlockWidth;
  std::vector<float> d_x(bench.x.size());
  const auto value = [&] {
    for (LabLinear<float>* linear : attention.linears()) linear->pack(bench.work);
    attention.reserve(bench.work, kBlockRows, bench.documents);
    bench.work.in_chunks(kBlockRows, [&](LabChunk chunk) {
      std::copy_n(bench.x.begin() + chunk.index * chunk_values, chunk_values, attention.normed(chunk.row()));
      attention.project(bench.work, chunk, bench.documents);
    });
    attention.attend(bench.work, bench.documents);
    std::vector<float> out(bench.x.size());
    bench.work.in_chunks(kBlockRows, [&](LabChunk chunk) {
      attention.output(bench.work, chunk, out.data() + chunk.index * chunk_values);
    });
    return block_sum(out, bench.factors);
  };
  value();
  LabFactors<float>&out_factors = bench.work.factors[0], &qkv_factors = bench.work.factors[1];
  attention.out().reserve(out_factors);
  attention.qkv().reserve(qkv_factors);
  bench.work.in_slices(
      kBlockRows,
      [&](LabChunk chunk) {
        attention.output_backward(bench.work, chunk, bench.factors.data() + chunk.index * chunk_values, out_factors);
      },
      [&](int64_t chunks) { attention.out().add_gradient(bench.work, out_factors, chunks); });
  attention.attend_backward(bench.work, bench.documents);
  bench.work.in_slices(
      kBlockRows,
      [&](LabChunk chunk) {
        attention.project_backward(bench.work, chunk, d_x.data() + chunk.index * chunk_values, qkv_factors);
      },
      [&](int64_t chunks) { attention.qkv().add_gradient(bench.work, qkv_factors, chunks); });
  expect_gradients(bench, value, d_x, {&bench.tensors().qkv, &bench.tensors().out});
}

void expect_gated_mlp_gradients(HiddenActivation activation) {
  BlockBench bench(activation);
  LabGatedMlp<float> mlp(activation, bench.tensors().gate_up, bench.tensors().down);
  LabMlpRows<float> rows;
  mlp.reserve(rows, kBlockRows);
  const int64_t chunk_values = kLabChunk * kBlockWidth;
  std::vector<float> out(bench.x.size()), d_x(bench.x.size());
  const auto value = [&] {
    for (LabLinear<float>* linear : mlp.linears()) linear->pack(bench.work);
    rows.in = bench.x;
    bench.work.in_chunks(kBlockRows, [&](LabChunk chunk) {
      mlp.forward(bench.work, rows, chunk, out.data() + chunk.index * chunk_values);
    });
    return block_sum(out, bench.factors);
  };
  value();
  LabFactors<float>&down = bench.work.factors[0], &gate_up = bench.work.factors[1];
  mlp.down().reserve(down);
  mlp.gate_up().reserve(gate_up);
  bench.work.in_slices(
      kBlockRows,
      [&](LabChunk chunk) {
        const int64_t at = chunk.index * chunk_values;
        mlp.backward(bench.work, rows, chunk, chunk, bench.factors.data() + at, d_x.data() + at, down, gate_up);
      },
      [&](int64_t chunks) {
        mlp.down().add_gradient(bench.work, down, chunks);
        mlp.gate_up().add_gradient(bench.work, gate_up, chunks);
      });
  expect_gradients(bench, value, d_x, {&bench.tensors().gate_up, &bench.tensors().down});
}

TEST(LabBlocks, GatedMlpHasItsGradient) { expect_gated_mlp_gradients(HiddenActivation::silu); }

TEST(LabBlocks, GatedMlpWithReluHasItsGradient) { expect_gated_mlp_gradients(HiddenActivation::relu); }

// With two experts, both used, the choice has no jumps and the auxiliary loss no gradient.
TEST(LabBlocks, MixtureHasItsGradient) {
  BlockBench bench(HiddenActivation::silu, 2);
  LabExperts<float> experts(HiddenActivation::silu, bench.layer(), bench.tensors());
  const auto value = [&] {
    for (LabLinear<float>* linear : experts.linears()) linear->pack(bench.work);
    experts.reserve(bench.work, kBlockRows);
    std::ranges::copy(bench.x, experts.in(0));
    std::vector<float> out(bench.x.size());
    experts.forward(bench.work, kBlockRows, out.data());
    return block_sum(out, bench.factors);
  };
  value();
  experts.backward(bench.work, kBlockRows, bench.factors.data());
  const std::vector<float> d_x = bench.work.d_normed;
  expect_gradients(bench, value, d_x, {&bench.tensors().router, &bench.tensors().gate_up, &bench.tensors().down});
}

// The auxiliary loss alone: where the experts have no output, the router still moves towards an even use.
TEST(LabBlocks, MixtureBalancesItsExperts) {
  BlockBench bench(HiddenActivation::silu, 4);
  LabExperts<float> experts(HiddenActivation::silu, bench.layer(), bench.tensors());
  for (LabLinear<float>* linear : experts.linears()) linear->pack(bench.work);
  experts.reserve(bench.work, kBlockRows);
  for (float& value : bench.x) value = std::abs(value);
  const LabTensor& router = bench.tensors().router;
  for (int64_t i = 0; i < router.columns; ++i)  // prefers the first two
    for (int64_t e = 0; e < router.rows; ++e)
      bench.model.weights()[static_cast<size_t>(router.offset + e * router.columns + i)] = e < 2 ? 0.01f : -0.01f;
  std::ranges::copy(bench.x, experts.in(0));
  std::vector<float> out(bench.x.size()), none(bench.x.size());
  experts.forward(bench.work, kBlockRows, out.data());
  experts.backward(bench.work, kBlockRows, none.data());
  for (int64_t e = 0; e < router.rows; ++e) {
    double slope = 0;
    for (int64_t i = 0; i < router.columns; ++i)
      slope += bench.model.gradient()[static_cast<size_t>(router.offset + e * router.columns + i)];
    EXPECT_EQ(slope > 0, e < 2) << e;
  }
}

TEST(LabBlocks, EmbeddingAndHeadHaveTheirGradient) {
  BlockBench bench;
  LabHead<float> head(bench.model);
  LabBatch batch;
  batch.starts = {0};
  for (int64_t t = 0; t < kBlockTokens; ++t) {
    batch.ids.push_back(static_cast<TokenId>(t * 7 % 96));
    batch.targets.push_back(static_cast<TokenId>(t * 5 % 96));
    batch.weights.push_back(static_cast<float>(t % 3));
  }
  // x is what the layers would add to the embedding.
  std::vector<float> in(bench.x.size()), d_x(bench.x.size());
  const auto forward = [&] {
    for (LabLinear<float>* linear : head.linears()) linear->pack(bench.work);
    head.embed(bench.work, batch, kBlockRows, in.data());
    for (size_t i = 0; i < in.size(); ++i) in[i] += bench.x[i];
  };
  const auto value = [&] {
    forward();
    const LabLoss loss = head.forward(bench.work, batch, in.data(), nullptr);
    return loss.loss / loss.weight;
  };
  forward();
  head.backward(bench.work, batch, in.data(), kBlockRows, d_x.data());
  head.embed_backward(bench.work, batch, d_x.data());
  expect_gradients(bench, value, d_x, {&bench.model.embedding(), &bench.model.final_norm()});
}

}  // namespace
}  // namespace millrace
