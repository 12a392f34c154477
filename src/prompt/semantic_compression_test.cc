// Semantic compression: the communities of a graph against all partitions, and the order of texts by hand.
#include <functional>

#include "prompt/prompt_words_test.h"
#include "prompt/text_communities.h"

namespace millrace {
namespace {

// Newman's modularity of a partition.
double modularity(const std::vector<double>& weights, const std::vector<int64_t>& community) {
  const size_t size = community.size();
  std::vector<double> degrees(size);
  double all = 0;
  for (size_t i = 0; i < size; ++i)
    for (size_t j = 0; j < size; ++j) degrees[i] += weights[i * size + j], all += weights[i * size + j];
  double sum = 0;
  for (size_t i = 0; i < size; ++i)
    for (size_t j = 0; j < size; ++j)
      if (community[i] == community[j]) sum += weights[i * size + j] - degrees[i] * degrees[j] / all;
  return sum / all;
}

double best_modularity(const std::vector<double>& weights, int64_t size) {
  std::vector<int64_t> community(static_cast<size_t>(size));
  double best = -1;
  const std::function<void(int64_t, int64_t)> assign = [&](int64_t vertex, int64_t used) {
    if (vertex == size) return void(best = std::max(best, modularity(weights, community)));
    for (int64_t c = 0; c <= used; ++c) {
      community[static_cast<size_t>(vertex)] = c;
      assign(vertex + 1, std::max(used, c + 1));
    }
  };
  assign(0, 0);
  return best;
}

std::vector<double> graph_of(int64_t size, const std::vector<std::tuple<int, int, double>>& edges) {
  std::vector<double> out(static_cast<size_t>(size * size));
  for (const auto& [a, b, weight] : edges)
    out[static_cast<size_t>(a * size + b)] = out[static_cast<size_t>(b * size + a)] = weight;
  return out;
}

TEST(TextCommunities, FindsGroupsThatAreConnectedWithin) {
  // Two triangles with a weak edge between them, and a vertex alone.
  const auto weights = graph_of(7, {{0, 2, 1}, {2, 4, 1}, {0, 4, 1}, {1, 3, 1}, {3, 5, 1}, {1, 5, 1}, {4, 5, 0.1}});
  EXPECT_EQ(find_communities(weights, 7), (std::vector<int64_t>{0, 1, 0, 1, 0, 1, 2}));
  EXPECT_EQ(find_communities(graph_of(3, {}), 3), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_TRUE(find_communities({}, 0).empty());
  // A ring of four pairs joins pairs first, then merges what remains as one vertex each.
  const auto ring =
      graph_of(8, {{0, 1, 9}, {2, 3, 9}, {4, 5, 9}, {6, 7, 9}, {1, 2, 1}, {3, 4, 1}, {5, 6, 1}, {7, 0, 1}});
  EXPECT_EQ(find_communities(ring, 8), (std::vector<int64_t>{0, 0, 1, 1, 2, 2, 3, 3}));
}

// The method is greedy: on average it is close to the best of all partitions, never above it, and never worse than one
// community, whose modularity is zero.
TEST(TextCommunities, IsCloseToTheBestPartition) {
  double ratio = 0;
  constexpr int kGraphs = 60;
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
    std::vector<std::tuple<int, int, double>> edges;
    uint64_t drawn = 0;
    for (int a = 0; a < 7; ++a)
      for (int b = 0; b < a; ++b)
        if (const double weight = philox_uniform(seed, 4, drawn++); weight > 0.6) edges.emplace_back(a, b, weight);
    const auto weights = graph_of(7, edges);
    const double best = best_modularity(weights, 7), found = modularity(weights, find_communities(weights, 7));
    EXPECT_LE(found, best + 1e-9) << seed;
    EXPECT_GE(found, -1e-9) << seed;
    ratio += best > 0 ? found / best : 1;
  }
  EXPECT_GT(ratio / kGraphs, 0.95);
}

// Topics {A, B, C} along x, {D, E} along y, {F} along z. B and C are nearest to the rest of the first topic.
TEST(SemanticCompression, KeepsTheCentreOfEachTopicFirst) {
  RepeatingModel model;
  const std::pair<const char*, std::vector<float>> vectors[] = {{"A", {0.8F, 0.6F, 0}},   {"B", {1, 0, 0}},
                                                                {"C", {0.96F, 0.28F, 0}}, {"D", {0, 0.6F, 0.8F}},
                                                                {"E", {0, 0.5F, 0.866F}}, {"F", {-1, 0, 0}}};
  for (const auto& [text, vector] : vectors) model.vectors[WordPrompt::id_of(text)] = vector;
  const WordPrompt prompt("[<s>]A a\nD a\nB a\nE a\nC a\nF a\nWho ?");
  const std::string member = "semantic_compression:center=0,rate=";
  // Each text has three tokens, of 18.
  EXPECT_EQ(compressed_text(member + "0.17", prompt, model), "<s>C a\nWho ?");
  EXPECT_EQ(compressed_text(member + "0.34", prompt, model), "<s>D a\nC a\nWho ?");
  EXPECT_EQ(compressed_text(member + "0.5", prompt, model), "<s>D a\nC a\nF a\nWho ?");
  EXPECT_EQ(compressed_text(member + "1", prompt, model), "<s>A a\nD a\nB a\nE a\nC a\nF a\nWho ?");
}

}  // namespace
}  // namespace millrace
