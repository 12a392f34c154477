#include "prompt/text_communities.h"

#include <algorithm>
#include <numeric>

namespace millrace {
namespace {

constexpr double kMinGain = 1e-12;
constexpr int kMaxRounds = 100;

struct Graph {
  std::vector<double> weights;  // [size, size]; the diagonal has the edges within a community twice
  size_t size = 0;

  double degree(size_t vertex) const {
    const auto row = weights.begin() + static_cast<ptrdiff_t>(vertex * size);
    return std::accumulate(row, row + static_cast<ptrdiff_t>(size), 0.0);
  }
};

// Moves vertices one by one to the neighbouring community with the largest gain. Returns false if none moved.
bool move_vertices(const Graph& graph, std::vector<size_t>& community) {
  std::vector<double> degrees(graph.size), totals(graph.size);
  for (size_t v = 0; v < graph.size; ++v) totals[v] = degrees[v] = graph.degree(v);
  const double all = std::accumulate(degrees.begin(), degrees.end(), 0.0);
  if (all <= 0) return false;
  bool moved = false, again = true;
  for (int round = 0; again && round < kMaxRounds; ++round) {
    again = false;
    for (size_t v = 0; v < graph.size; ++v) {
      std::vector<double> to(graph.size);
      for (size_t w = 0; w < graph.size; ++w)
        if (w != v) to[community[w]] += graph.weights[v * graph.size + w];
      const size_t own = community[v];
      totals[own] -= degrees[v];
      const auto gain = [&](size_t c) { return to[c] - totals[c] * degrees[v] / all; };
      size_t best = own;
      for (size_t c = 0; c < graph.size; ++c)
        if (to[c] > 0 && gain(c) > gain(best) + kMinGain) best = c;
      totals[best] += degrees[v];
      community[v] = best;
      again |= best != own;
      moved |= best != own;
    }
  }
  return moved;
}

// Numbers communities from 0 in the order of their first vertices; returns how many there are.
size_t number_communities(std::vector<size_t>& community) {
  std::vector<size_t> numbers(community.size(), community.size());
  size_t next = 0;
  for (size_t& c : community) {
    if (numbers[c] == community.size()) numbers[c] = next++;
    c = numbers[c];
  }
  return next;
}

}  // namespace

std::vector<int64_t> find_communities(std::span<const double> weights, int64_t vertices) {
  Graph graph{{weights.begin(), weights.end()}, static_cast<size_t>(vertices)};
  std::vector<size_t> of_vertex(graph.size);
  std::iota(of_vertex.begin(), of_vertex.end(), size_t{0});
  for (;;) {
    std::vector<size_t> community(graph.size);
    std::iota(community.begin(), community.end(), size_t{0});
    if (!move_vertices(graph, community)) break;
    Graph merged;
    merged.size = number_communities(community);
    merged.weights.resize(merged.size * merged.size);
    for (size_t v = 0; v < graph.size; ++v)
      for (size_t w = 0; w < graph.size; ++w)
        merged.weights[community[v] * merged.size + community[w]] += graph.weights[v * graph.size + w];
    for (size_t& c : of_vertex) c = community[c];
    if (merged.size == graph.size) break;
    graph = std::move(merged);
  }
  number_communities(of_vertex);
  return {of_vertex.begin(), of_vertex.end()};
}

}  // namespace millrace
