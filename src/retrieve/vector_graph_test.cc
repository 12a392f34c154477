#include "retrieve/vector_graph.h"

#include <fstream>
#include <iterator>
#include <set>

#include "retrieve/inner_product.h"
#include "retrieve/retrieve_test.h"

namespace millrace {
namespace {

const std::string kStore = "0123456789abcdef";

std::vector<std::vector<float>> random_vectors(size_t count, size_t width, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> out(count, std::vector<float>(width));
  for (auto& one : out) {
    double sum = 0;
    for (float& value : one) {
      value = normal(random);
      sum += static_cast<double>(value) * value;
    }
    for (float& value : one) value /= static_cast<float>(std::sqrt(sum));
  }
  return out;
}

VectorGraph graph_of(const std::vector<std::vector<float>>& vectors) {
  VectorGraph out = got(VectorGraph::create(static_cast<int64_t>(vectors[0].size())));
  for (size_t i = 0; i < vectors.size(); ++i) EXPECT_TRUE(out.add(static_cast<int64_t>(i), vectors[i]).ok());
  return out;
}

std::vector<int64_t> ids_of(const std::vector<NearVector>& found) {
  std::vector<int64_t> out;
  for (const NearVector& one : found) out.push_back(one.id);
  return out;
}

TEST(InnerProduct, IsTheSumOfProducts) {
  std::mt19937_64 random(3);
  for (size_t size = 0; size < 70; ++size) {
    std::vector<float> a(size), b(size);
    double sum = 0;
    for (size_t i = 0; i < size; ++i) {
      a[i] = static_cast<float>(random() % 17) - 8;
      b[i] = static_cast<float>(random() % 17) - 8;
      sum += static_cast<double>(a[i]) * b[i];
    }
    EXPECT_EQ(inner_product(a.data(), b.data(), size), sum) << size;
  }
}

TEST(VectorGraph, FindsWhatTheExactSearchFinds) {
  const auto vectors = random_vectors(3000, 32, 1), queries = random_vectors(100, 32, 2);
  const VectorGraph graph = graph_of(vectors);
  int64_t same = 0;
  for (const auto& query : queries) {
    std::vector<NearVector> exact;
    for (size_t i = 0; i < vectors.size(); ++i)
      exact.push_back({static_cast<int64_t>(i), inner_product(query.data(), vectors[i].data(), query.size())});
    keep_nearest(exact, 10);
    std::set<int64_t> wanted;
    for (const NearVector& one : exact) wanted.insert(one.id);
    const auto found = graph.near(query, 10, 200);
    EXPECT_EQ(found.size(), 10u);
    for (const NearVector& one : found) same += static_cast<int64_t>(wanted.count(one.id));
  }
  EXPECT_GE(same, 950);  // recall@10 of 0.95
}

TEST(VectorGraph, RemovedVectorsAreNotFoundAndFilesKeepThem) {
  IndexFolder folder;
  std::filesystem::create_directories(folder.path());
  const std::string path = folder.path() + "/vectors-1.hnsw";
  const auto vectors = random_vectors(200, 8, 3);
  VectorGraph graph = graph_of(vectors);
  for (int64_t id = 0; id < 150; ++id) graph.remove(id);
  graph.remove(149);
  graph.remove(1000);
  EXPECT_EQ(graph.size(), 50);
  EXPECT_EQ(graph.removed(), 150);
  for (const NearVector& one : graph.near(vectors[3], 50, 200)) EXPECT_GE(one.id, 150);
  ASSERT_TRUE(graph.save(path, kStore).ok());
  auto loaded = VectorGraph::load(path, kStore, 8);
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->ids(), graph.ids());
  EXPECT_EQ(loaded->removed(), 150);
  for (const auto& query : random_vectors(20, 8, 4))
    EXPECT_EQ(ids_of(loaded->near(query, 5, 50)), ids_of(graph.near(query, 5, 50)));
  ASSERT_TRUE(loaded->add(7000, vectors[0]).ok());
  EXPECT_EQ(loaded->near(vectors[0], 1, 50).front().id, 7000);
}

TEST(VectorGraph, RefusesDamagedFilesAndThoseOfOtherStores) {
  IndexFolder folder;
  std::filesystem::create_directories(folder.path());
  const std::string path = folder.path() + "/vectors-1.hnsw";
  ASSERT_TRUE(graph_of(random_vectors(50, 8, 5)).save(path, kStore).ok());
  ASSERT_TRUE(VectorGraph::load(path, kStore, 8));
  EXPECT_FALSE(VectorGraph::load(path, "fedcba9876543210", 8));
  EXPECT_FALSE(VectorGraph::load(path, kStore, 9));
  const auto read = [](const std::string& name) {
    std::ifstream file(name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const auto write = [](const std::string& name, const std::string& bytes) {
    std::ofstream(name, std::ios::binary | std::ios::trunc) << bytes;
  };
  for (const std::string& name : {path, path + ".check"}) {
    const std::string whole = read(name);
    std::mt19937_64 random(6);
    for (int round = 0; round < 60; ++round) {
      std::string damaged = whole;
      const size_t at = random() % (whole.size() - 1);  // not the line end of the check
      if (round % 2 == 0)
        damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 7));
      else
        damaged.resize(at);
      write(name, damaged);
      EXPECT_FALSE(VectorGraph::load(path, kStore, 8)) << name << " " << round << " " << at;
    }
    write(name, whole);
    EXPECT_TRUE(VectorGraph::load(path, kStore, 8));
  }
  std::filesystem::remove(path);
  EXPECT_FALSE(VectorGraph::load(path, kStore, 8));
}

TEST(VectorGraph, BoundsWhatItTakes) {
  EXPECT_FALSE(VectorGraph::create(0).ok());
  EXPECT_FALSE(VectorGraph::create(1 << 20).ok());
  VectorGraph graph = got(VectorGraph::create(4));
  EXPECT_TRUE(graph.near(std::vector<float>(4, 1.0f), 3, 10).empty());
  EXPECT_FALSE(graph.add(1, std::vector<float>(3)).ok());
}

}  // namespace
}  // namespace millrace
