// Centroids: k-means finds clusters that are there, the file returns what was written, and queries keep more of their
// attention with centroids that were fitted than with random ones.
#include "evaluate/centroid_fit.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/philox.h"
#include "contains.h"
#include "evaluate/scorer.h"
#include "models/kept_mass_observer.h"
#include "test_paths.h"

namespace millrace {
namespace {

constexpr int64_t kFitContext = 128;

class CentroidFile {
 public:
  ~CentroidFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  const std::string& path() const { return path_; }
  void write(const std::string& text) const { std::ofstream(path_) << text; }

 private:
  std::string path_ = std::filesystem::temp_directory_path() / ("millrace_centroids_" + std::to_string(::getpid()));
};

std::shared_ptr<const LanguageModel> load_for_fit(const std::string& name) {
  auto model = LanguageModel::load(std::string(MILLRACE_SOURCE_DIR) + name, {.threads = 1, .context = kFitContext});
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
  return model.ok() ? *model : nullptr;
}

std::vector<TokenId> tokens_to_fit(const LanguageModel& model, uint64_t seed) {
  std::vector<TokenId> out;
  for (uint64_t i = 0; i < 4 * kFitContext; ++i)
    out.push_back(static_cast<TokenId>(philox_uniform(seed, 2, i) * static_cast<double>(model.info().vocab)));
  return out;
}

TEST(CentroidFit, FindsTheDirectionsOfClusters) {
  constexpr int64_t kDims = 8;
  std::vector<float> vectors;
  for (uint64_t i = 0; i < 300; ++i)  // around the axes 1, 4 and 6
    for (int64_t d = 0; d < kDims; ++d) {
      const bool axis = d == std::array{1, 4, 6}[i % 3];
      vectors.push_back(static_cast<float>(0.2 * philox_uniform(1, i, static_cast<uint64_t>(d)) + (axis ? 1 : 0)));
    }
  for (size_t i = 0; i < vectors.size(); i += kDims) {
    float square = 0;
    for (size_t d = 0; d < kDims; ++d) square += vectors[i + d] * vectors[i + d];
    for (size_t d = 0; d < kDims; ++d) vectors[i + d] /= std::sqrt(square);
  }
  const auto found = cluster_directions(vectors, kDims, 3, 5);
  ASSERT_EQ(found.size(), size_t{3 * kDims});
  for (size_t axis : {1, 4, 6}) {
    float most = 0;
    for (size_t c = 0; c < 3; ++c) most = std::max(most, found[c * kDims + axis]);
    EXPECT_GT(most, 0.95) << axis;
  }
  EXPECT_EQ(cluster_directions(vectors, kDims, 3, 5), found);
}

TEST(CentroidFit, IsTheSameWhateverTheThreadsAndSurvivesItsFile) {
  const auto model = load_for_fit("/tests/golden/llama3/model.gguf");
  ASSERT_TRUE(model);
  const auto tokens = tokens_to_fit(*model, 1);
  const auto one = fit_routing_centroids(model, tokens, {.threads = 1, .context = kFitContext, .clusters = 6});
  const auto three = fit_routing_centroids(model, tokens, {.threads = 3, .context = kFitContext, .clusters = 6});
  ASSERT_TRUE(one.ok() && three.ok()) << one.error().message;
  EXPECT_EQ(one->layers, three->layers);
  const auto& layers = model->parts().model->spec().layers;
  ASSERT_EQ(one->layers.size(), layers.size());
  EXPECT_EQ(one->dims, layers[0].head_dim);
  for (size_t l = 0; l < layers.size(); ++l) EXPECT_EQ(one->heads(static_cast<int64_t>(l)), layers[l].kv_heads);

  const CentroidFile file;
  ASSERT_TRUE(write_routing_centroids(file.path(), *one, "tiny").ok());
  const auto read = read_routing_centroids(file.path());
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->clusters, 6);
  for (size_t l = 0; l < layers.size(); ++l) {
    ASSERT_EQ(read->layers[l].size(), one->layers[l].size());
    for (size_t i = 0; i < read->layers[l].size(); ++i) EXPECT_NEAR(read->layers[l][i], one->layers[l][i], 5.1e-5);
  }
}

double mass_with_routing(const std::shared_ptr<const LanguageModel>& model, std::span<const TokenId> tokens,
                         const std::string& options) {
  const auto scorer =
      Scorer::create(model, {.threads = 1,
                             .context = kFitContext,
                             .kernels = {"attention=routing_transformer:block=16,top=1,sinks=0," + options}});
  EXPECT_TRUE(scorer.ok()) << (scorer.ok() ? "" : scorer.error().message);
  const KeptMassObserver kept((*scorer)->runner());
  EXPECT_TRUE((*scorer)
                  ->run(tokens, chunk_windows(std::ssize(tokens), kFitContext), -1,
                        [](std::span<const ScoredRow>) { return Result<void>(); })
                  .ok());
  return kept.kept().mean_mass();
}

TEST(CentroidFit, KeepsMoreAttentionThanRandomCentroids) {
  const auto model = load_for_fit("/models/millrace-stories-6m.gguf");
  ASSERT_TRUE(model);
  std::ifstream in(std::string(MILLRACE_SOURCE_DIR) + "/models/README.md");
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  auto tokens = model->encode(text);
  ASSERT_TRUE(tokens.ok());
  ASSERT_GE(tokens->size(), size_t{1024});
  const std::span all(*tokens);
  const auto fitted =
      fit_routing_centroids(model, all.subspan(512, 512), {.threads = 1, .context = kFitContext, .clusters = 16});
  ASSERT_TRUE(fitted.ok()) << fitted.error().message;
  const CentroidFile file;
  ASSERT_TRUE(write_routing_centroids(file.path(), *fitted, "stories").ok());
  EXPECT_GT(mass_with_routing(model, all.first(512), "centroids=" + file.path()),
            mass_with_routing(model, all.first(512), "clusters=16"));
}

TEST(CentroidFit, ErrorsAreExact) {
  const auto model = load_for_fit("/tests/golden/llama3/model.gguf");
  ASSERT_TRUE(model);
  const auto refused = fit_routing_centroids(model, std::vector<TokenId>(20), {.threads = 1, .context = kFitContext});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(
      refused.error().message,
      "text: has 0 tokens in whole windows of 128, too few for 32 clusters; lower the context or give a longer text");

  const CentroidFile file;
  const std::string pattern = "attention=routing_transformer:block=16,centroids=" + file.path();
  const auto failure = [&](const std::string& more = "") -> std::string {
    const auto made = Scorer::create(model, {.threads = 1, .context = kFitContext, .kernels = {pattern + more}});
    return made.ok() ? "" : made.error().message;
  };
  EXPECT_CONTAINS(failure(), "cannot be read: No such file or directory");
  const auto fails = [&](const std::string& text, const std::string& why) {
    file.write(text);
    EXPECT_EQ(failure(), "attention routing_transformer: " + file.path() + ": " + why) << text;
  };
  const std::string head = R"({"file": "millrace routing centroids", )";
  fails("{}", "has no centroids; millrace centroids makes such a file");
  fails(head + R"("clusters": 1, "dims": 2, "layers": [[1]]})", "clusters: must be 2 to 256");
  fails(head + R"("clusters": 2, "dims": 0, "layers": [[1]]})", "dims: must be 1 to 1024");
  fails(head + R"("clusters": 2, "dims": 2, "layers": []})", "layers: no list");
  fails(head + R"("clusters": 2, "dims": 2, "layers": [[1, 2, 3]]})", "layers[0]: expected 4 numbers for each head");
  fails(head + R"("clusters": 2, "dims": 2, "layers": [[1, 2, 3, "4"]]})",
        "layers[0]: expected 4 numbers for each head");
  file.write(head + R"("clusters": 2, "dims": 2, "layers": [[1, 2, 3, 4]]})");
  EXPECT_CONTAINS(failure(), "were fitted to a model with other layers or heads; run millrace centroids with this one");
  EXPECT_CONTAINS(failure(",clusters=4"), "the file says how many clusters there are");
}

}  // namespace
}  // namespace millrace
