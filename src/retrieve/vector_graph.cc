#include "retrieve/vector_graph.h"

#include <fmt/format.h>
// The plain loops of hnswlib: distances are those of inner_product(), the same on every instruction set. It stores
// labels of eight bytes at multiples of four, which every supported processor allows and the sanitizer reports.
#define NO_MANUAL_VECTORIZATION
#ifdef __clang__
#pragma clang attribute push(__attribute__((no_sanitize("alignment"))), apply_to = function)
#endif
#include <hnswlib/hnswlib.h>
#ifdef __clang__
#pragma clang attribute pop
#endif
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/pending_file.h"
#include "base/publish.h"
#include "retrieve/inner_product.h"

namespace millrace {
namespace {

constexpr size_t kLinks = 16;         // of a vector in a layer, M in the paper; twice as many in the lowest
constexpr size_t kBuildEffort = 200;  // efConstruction in the paper
constexpr size_t kFirstRoom = 1024;   // vectors
constexpr int64_t kMaxWidth = 1 << 16;

// Returns the size and the checksum of a file; null if it cannot be read.
std::optional<std::pair<uint64_t, std::string>> file_digest(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), XXH3_freeState);
  if (!state || XXH3_128bits_reset(state.get()) != XXH_OK) return std::nullopt;
  std::vector<char> piece(1 << 20);
  uint64_t bytes = 0;
  while (file) {
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    const auto count = static_cast<size_t>(file.gcount());
    XXH3_128bits_update(state.get(), piece.data(), count);
    bytes += count;
  }
  if (!file.eof()) return std::nullopt;
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return std::pair(bytes, fmt::format("{:016x}{:016x}", hash.high64, hash.low64));
}

// Sets the number of removed vectors after a load: hnswlib 0.6 adds to a member that it has not set.
void count_removed(hnswlib::HierarchicalNSW<float>& graph) {
  graph.num_deleted_ = 0;
  for (size_t at = 0; at < graph.cur_element_count; ++at)
    if (graph.isMarkedDeleted(static_cast<hnswlib::tableint>(at))) ++graph.num_deleted_;
}

// Returns the bytes of the graph's file. hnswlib does not report a failed write.
uint64_t file_bytes(const hnswlib::HierarchicalNSW<float>& graph) {
  constexpr uint64_t kHeadBytes = 96;
  uint64_t bytes = kHeadBytes + graph.cur_element_count * (graph.size_data_per_element_ + sizeof(unsigned));
  for (size_t at = 0; at < graph.cur_element_count; ++at)
    bytes += static_cast<uint64_t>(graph.element_levels_[at]) * graph.size_links_per_element_;
  return bytes;
}

std::string check_line(const std::string& store, int64_t width, size_t count, uint64_t bytes,
                       const std::string& checksum) {
  return fmt::format("millrace-hnsw 1 {} {} {} {} {}\n", store, width, count, bytes, checksum);
}

}  // namespace

class VectorGraph::Distance final : public hnswlib::SpaceInterface<float> {
 public:
  explicit Distance(size_t width) : width_(width) {}
  size_t get_data_size() override { return width_ * sizeof(float); }
  hnswlib::DISTFUNC<float> get_dist_func() override { return distance; }
  void* get_dist_func_param() override { return &width_; }

 private:
  static float distance(const void* a, const void* b, const void* width) {
    return 1.0f - inner_product(static_cast<const float*>(a), static_cast<const float*>(b),
                                *static_cast<const size_t*>(width));
  }
  size_t width_;
};

struct VectorGraph::Parts {
  explicit Parts(int64_t vector_width) : width(vector_width), distance(static_cast<size_t>(vector_width)) {}

  int64_t width;
  Distance distance;
  std::unique_ptr<hnswlib::HierarchicalNSW<float>> graph;
};

VectorGraph::VectorGraph(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
VectorGraph::VectorGraph(VectorGraph&&) noexcept = default;
VectorGraph& VectorGraph::operator=(VectorGraph&&) noexcept = default;
VectorGraph::~VectorGraph() = default;

Result<VectorGraph> VectorGraph::create(int64_t width) {
  if (width < 1 || width > kMaxWidth)
    return Error::corrupt(fmt::format("vectors: must have 1 to {} values, not {}", kMaxWidth, width));
  auto parts = std::make_unique<Parts>(width);
  try {
    parts->graph =
        std::make_unique<hnswlib::HierarchicalNSW<float>>(&parts->distance, kFirstRoom, kLinks, kBuildEffort);
  } catch (const std::exception& error) {
    return Error::resource(fmt::format("vectors: no memory for the graph: {}", error.what()));
  }
  return VectorGraph(std::move(parts));
}

std::optional<VectorGraph> VectorGraph::load(const std::string& path, const std::string& store, int64_t width) {
  if (width < 1 || width > kMaxWidth) return std::nullopt;
  std::ifstream check(path + ".check", std::ios::binary);
  std::string line;
  if (!check || !std::getline(check, line) || line.size() > 512) return std::nullopt;
  const auto digest = file_digest(path);
  if (!digest) return std::nullopt;
  auto parts = std::make_unique<Parts>(width);
  // The count is in the middle of the line: everything else must be as this file and store have it.
  const std::string begin = fmt::format("millrace-hnsw 1 {} {} ", store, width);
  const std::string end = fmt::format(" {} {}", digest->first, digest->second);
  if (line.size() <= begin.size() + end.size() || !line.starts_with(begin) || !line.ends_with(end)) return std::nullopt;
  try {
    parts->graph = std::make_unique<hnswlib::HierarchicalNSW<float>>(&parts->distance, path);
    count_removed(*parts->graph);
    const std::string count = line.substr(begin.size(), line.size() - begin.size() - end.size());
    if (count != std::to_string(parts->graph->cur_element_count)) return std::nullopt;
  } catch (const std::exception&) {
    return std::nullopt;
  }
  return VectorGraph(std::move(parts));
}

Result<void> VectorGraph::add(int64_t id, std::span<const float> vector) {
  auto& graph = *parts_->graph;
  if (static_cast<int64_t>(vector.size()) != parts_->width)
    return Error::corrupt(fmt::format("vectors: vector {} has {} values, not {}", id, vector.size(), parts_->width));
  try {
    if (graph.cur_element_count >= graph.max_elements_)
      graph.resizeIndex(std::max(kFirstRoom, graph.max_elements_ + graph.max_elements_ / 2));
    graph.addPoint(vector.data(), static_cast<hnswlib::labeltype>(id));
  } catch (const std::exception& error) {
    return Error::resource(fmt::format("vectors: vector {} does not fit into memory: {}", id, error.what()));
  }
  return {};
}

void VectorGraph::remove(int64_t id) {
  if (has(id)) parts_->graph->markDelete(static_cast<hnswlib::labeltype>(id));
}

bool VectorGraph::has(int64_t id) const {
  const auto& graph = *parts_->graph;
  const auto found = graph.label_lookup_.find(static_cast<hnswlib::labeltype>(id));
  return found != graph.label_lookup_.end() && !graph.isMarkedDeleted(found->second);
}

std::vector<int64_t> VectorGraph::ids() const {
  std::vector<int64_t> out;
  for (const auto& [label, at] : parts_->graph->label_lookup_)
    if (!parts_->graph->isMarkedDeleted(at)) out.push_back(static_cast<int64_t>(label));
  std::ranges::sort(out);
  return out;
}

int64_t VectorGraph::size() const { return static_cast<int64_t>(parts_->graph->cur_element_count) - removed(); }

int64_t VectorGraph::removed() const { return static_cast<int64_t>(parts_->graph->num_deleted_); }

std::vector<NearVector> VectorGraph::near(std::span<const float> query, int64_t k, int64_t effort) const {
  auto& graph = *parts_->graph;
  if (size() == 0 || k < 1 || static_cast<int64_t>(query.size()) != parts_->width) return {};
  // hnswlib keeps max(ef, k) vectors in view; a larger k therefore stands for the effort.
  auto found = graph.searchKnn(query.data(), static_cast<size_t>(std::max(k, effort)));
  std::vector<NearVector> out;
  for (; !found.empty(); found.pop())
    out.push_back({static_cast<int64_t>(found.top().second), 1.0f - found.top().first});
  keep_nearest(out, k);
  return out;
}

Result<void> VectorGraph::save(const std::string& path, const std::string& store) const {
  const auto failed = [&](const std::string& reason) {
    return Error::resource(fmt::format("{}: cannot be written: {}", path, reason));
  };
  const std::string fresh = path + ".tmp";
  try {
    parts_->graph->saveIndex(fresh);
  } catch (const std::exception& error) {
    return failed(error.what());
  }
  const auto digest = file_digest(fresh);
  if (!digest || digest->first != file_bytes(*parts_->graph)) return failed("the disk is full, or not writable");
  if (const auto reason = publish(fresh, path)) return failed(reason.message());
  return write_whole_file(path + ".check", check_line(store, parts_->width, parts_->graph->cur_element_count,
                                                      digest->first, digest->second));
}

void keep_nearest(std::vector<NearVector>& all, int64_t k) {
  const auto nearer = [](const NearVector& a, const NearVector& b) {
    return a.similarity != b.similarity ? a.similarity > b.similarity : a.id < b.id;
  };
  std::ranges::sort(all, nearer);
  if (static_cast<int64_t>(all.size()) > k) all.resize(static_cast<size_t>(k));
}

}  // namespace millrace
