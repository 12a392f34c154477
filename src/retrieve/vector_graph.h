// VectorGraph: finds near vectors by a hierarchical navigable small world graph (Malkov and Yashunin, 2018, Efficient
// and Robust Approximate Nearest Neighbor Search Using Hierarchical Navigable Small World Graphs), with hnswlib.
//
// The graph is a cache of the vectors in an IndexStore. Its file may be missing, older than the store or damaged:
//
//   vectors-T.hnsw          the graph of tenant T, as hnswlib writes it
//   vectors-T.hnsw.check    "millrace-hnsw 1 STORE WIDTH COUNT BYTES CHECKSUM\n"; frozen
//
// hnswlib trusts its file, so load() compares the size and XXH3-128 of the whole file first. Identifiers are never
// reused and a vector never changes, so that a file that is older than the store lacks some identifiers and has some
// too many, which the owner corrects. Vectors are inserted in the order of calls, by one thread: the same calls give
// the same graph. Searches may run at the same time; changes may not.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace millrace {

struct NearVector {
  int64_t id;
  float similarity;  // inner product
};

class VectorGraph {
 public:
  // `width`: values of a vector.
  static Result<VectorGraph> create(int64_t width);
  // Returns null if the file is missing, damaged, or of another store. `store`: the identity of the store.
  static std::optional<VectorGraph> load(const std::string& path, const std::string& store, int64_t width);
  VectorGraph(VectorGraph&&) noexcept;
  VectorGraph& operator=(VectorGraph&&) noexcept;
  ~VectorGraph();

  // Errors: resource (memory).
  Result<void> add(int64_t id, std::span<const float> vector);
  // Does nothing if there is no such vector.
  void remove(int64_t id);
  bool has(int64_t id) const;
  std::vector<int64_t> ids() const;  // ascending, without removed ones
  int64_t size() const;
  int64_t removed() const;  // vectors that still take memory and time

  // Returns at most `k` vectors, the most similar first, of equal ones the lower identifier. `effort`: vectors that the
  // search keeps in view; at least k.
  std::vector<NearVector> near(std::span<const float> query, int64_t k, int64_t effort) const;

  // Writes both files; a crash leaves files that load() refuses, or the old ones. Errors: resource.
  Result<void> save(const std::string& path, const std::string& store) const;

 private:
  class Distance;
  struct Parts;
  explicit VectorGraph(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

// Sorts by similarity, of equal ones by identifier, and keeps the first `k`.
void keep_nearest(std::vector<NearVector>& all, int64_t k);

}  // namespace millrace
