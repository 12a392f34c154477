// How OWL and ISC divide zeros among layers.
#include "compress/pruners/layer_ratios.h"

#include <algorithm>

#include "compress/pruners/pruner_test.h"

namespace millrace {
namespace {

using namespace testing;

TEST(LayerRatios, KeepTheSumAndTheSpread) {
  const std::vector<LayerShare> layers = {{0.5, 100}, {3, 300}, {1, 50}, {2, 100}};
  const auto ratios = layer_ratios(layers, 0.6, 0.08);
  double zeros = 0, weights = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    zeros += ratios[i] * static_cast<double>(layers[i].weights);
    weights += static_cast<double>(layers[i].weights);
    for (size_t j = 0; j < layers.size(); ++j)
      EXPECT_EQ(ratios[i] > ratios[j], layers[i].importance < layers[j].importance);
  }
  EXPECT_NEAR(zeros / weights, 0.6, 1e-12);
  EXPECT_NEAR(ratios[0] - ratios[1], 0.16, 1e-12);
  EXPECT_NEAR((ratios[0] - ratios[2]) / 0.16, 0.2, 1e-12);  // linear in the importance
  EXPECT_EQ(layer_ratios({{1, 10}, {1, 20}}, 0.3, 0.1), (std::vector<double>{0.3, 0.3}));
  EXPECT_TRUE(layer_ratios({}, 0.3, 0.1).empty());
  for (double ratio : layer_ratios(layers, 1, 0.5)) EXPECT_LE(ratio, 1);
}

struct Layer {
  PassMatrix matrix;
  LinearStatistics statistics;
};

std::vector<Layer> some_layers(ThreadPool& pool) {
  std::vector<Layer> out;
  for (int32_t i = 0; i < 4; ++i) {
    Layer layer{matrix_of(20, 40, "f32", static_cast<uint32_t>(6 + i)), {}};
    layer.matrix.id = {i / 2, i % 2 ? LinearKind::up : LinearKind::q};
    layer.matrix.name = std::to_string(i);
    // The second layer has a few large inputs, and larger ones altogether.
    auto x = normal_values(50 * 40, static_cast<uint32_t>(20 + i));
    for (size_t k = 0; i >= 2 && k < x.size(); ++k) x[k] *= k % 40 < 2 ? 40.0f : 2.0f;
    layer.statistics = statistics_of(x, 40, pool);
    layer.statistics.id = layer.matrix.id;
    out.push_back(std::move(layer));
  }
  return out;
}

// The fractions of zeros of the layers' matrices.
std::vector<double> zeros_of(const std::string& options, int threads) {
  ThreadPool pool(threads);
  auto layers = some_layers(pool);
  const auto pass = pass_of(options);
  for (int time = 0; time < pass->surveys(); ++time)
    for (const Layer& layer : layers) pass->survey(time, layer.matrix, layer.statistics, pool);
  std::vector<double> out;
  for (Layer& layer : layers) {
    EXPECT_TRUE(pass->apply(layer.matrix, layer.statistics, pool).ok());
    out.push_back(static_cast<double>(std::ranges::count(layer.matrix.kept, 0)) / 800);
  }
  return out;
}

TEST(Owl, LayersWithOutliersLoseLess) {
  ThreadPool pool(1);
  std::vector<double> parts;  // of scores above five times the mean, by layer
  const auto layers = some_layers(pool);
  for (size_t l = 0; l < 2; ++l) {
    std::vector<double> scores;
    for (size_t i = 2 * l; i < 2 * l + 2; ++i)
      for (size_t k = 0; k < 800; ++k)
        scores.push_back(std::fabs(double{layers[i].matrix.values[k]}) *
                         std::sqrt(layers[i].statistics.squares[k % 40]));
    double sum = 0;
    for (double score : scores) sum += score;
    const auto above = [&](double score) { return score > 5 * sum / 1600; };
    parts.push_back(static_cast<double>(std::ranges::count_if(scores, above)) / 1600);
  }
  ASSERT_LT(parts[0], parts[1]);
  // Two layers of equal size: one lambda above the fraction of the model, one as far below.
  EXPECT_EQ(zeros_of("owl:sparsity=0.5,lambda=0.1", 1), (std::vector<double>{0.6, 0.6, 0.4, 0.4}));
  EXPECT_EQ(zeros_of("owl:sparsity=0.5,lambda=0.1,prune=magnitude", 3), (std::vector<double>{0.6, 0.6, 0.4, 0.4}));
  EXPECT_EQ(zeros_of("owl:lambda=0", 3), (std::vector<double>{0.5, 0.5, 0.5, 0.5}));
  EXPECT_EQ(zeros_of("owl:m=1000", 1), (std::vector<double>{0.5, 0.5, 0.5, 0.5}));  // no outliers
}

TEST(Owl, ChoosesAsItsPruner) {
  ThreadPool pool(2);
  for (const std::string prune : {"wanda", "magnitude"}) {
    auto layers = some_layers(pool);
    PassMatrix want = layers[0].matrix;
    ASSERT_TRUE(pass_of(prune == "wanda" ? "wanda:sparsity=0.3" : "magnitude:sparsity=0.3,scope=row")
                    ->apply(want, layers[0].statistics, pool)
                    .ok());
    const auto pass = pass_of("owl:lambda=0,sparsity=0.3,prune=" + prune);
    for (int time = 0; time < 2; ++time) pass->survey(time, layers[0].matrix, layers[0].statistics, pool);
    ASSERT_TRUE(pass->apply(layers[0].matrix, layers[0].statistics, pool).ok());
    EXPECT_EQ(layers[0].matrix.kept, want.kept);
  }
  EXPECT_EQ(make_pass("owl:prune=ria").error().message, "pass owl: prune 'ria': must be wanda or magnitude");
}

TEST(Isc, SensitiveMatricesLoseLess) {
  const auto zeros = zeros_of("isc:spread=0.1", 1);
  EXPECT_EQ(zeros, zeros_of("isc:spread=0.1", 3));
  for (double later : {zeros[2], zeros[3]})
    for (double earlier : {zeros[0], zeros[1]}) EXPECT_LT(later, earlier);
  EXPECT_NEAR(zeros[0] + zeros[1] + zeros[2] + zeros[3], 2, 0.01);
  EXPECT_NEAR(*std::ranges::max_element(zeros) - *std::ranges::min_element(zeros), 0.2, 0.01);
}

}  // namespace
}  // namespace millrace
