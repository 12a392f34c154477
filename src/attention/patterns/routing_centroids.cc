#include "attention/patterns/routing_centroids.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cmath>

#include "attention/dynamic_pattern.h"
#include "attention/patterns/fitted_text.h"
#include "base/json_text.h"
#include "base/pending_file.h"

namespace millrace {
namespace {

using CentroidJson = nlohmann::ordered_json;

constexpr const char* kCentroidFile = "millrace routing centroids";
constexpr int64_t kMaxClusters = 256;
constexpr double kRounding = 1e4;

// False: not numbers of whole heads.
bool read_layer(const CentroidJson& layer, int64_t head_values, std::vector<float>& out) {
  if (!layer.is_array() || std::ssize(layer) % head_values != 0) return false;
  out.reserve(layer.size());
  for (const CentroidJson& one : layer) {
    if (!one.is_number()) return false;
    const double value = one.get<double>();
    if (!(std::fabs(value) <= 1e6)) return false;
    out.push_back(static_cast<float>(value));
  }
  return true;
}

}  // namespace

std::string RoutingCentroids::digest() const {
  XXH64_hash_t hash = static_cast<XXH64_hash_t>(clusters);
  for (const auto& layer : layers) hash = XXH3_64bits_withSeed(layer.data(), layer.size() * sizeof(float), hash);
  return fmt::format("{:016x}", hash);
}

Result<RoutingCentroids> read_routing_centroids(const std::string& path) {
  MILLRACE_TRY(const std::string text, read_fitted_text(path));
  const CentroidJson json = parse_json(text);
  if (!json.is_object() || json.value("file", CentroidJson()) != kCentroidFile)
    return Error::corrupt(fmt::format("{}: has no centroids; millrace centroids makes such a file", path));
  RoutingCentroids out;
  const auto number = [&](const char* key, int64_t least, int64_t most, int64_t& to) {
    const CentroidJson value = json.value(key, CentroidJson());
    if (!value.is_number_integer() || value < least || value > most) return false;
    to = value.get<int64_t>();
    return true;
  };
  if (!number("clusters", 2, kMaxClusters, out.clusters))
    return Error::corrupt(fmt::format("{}: clusters: must be 2 to {}", path, kMaxClusters));
  if (!number("dims", 1, kMaxDynamicDim, out.dims))
    return Error::corrupt(fmt::format("{}: dims: must be 1 to {}", path, kMaxDynamicDim));
  const auto layers = json.find("layers");
  if (layers == json.end() || !layers->is_array() || layers->empty())
    return Error::corrupt(fmt::format("{}: layers: no list", path));
  for (const CentroidJson& layer : *layers)
    if (!read_layer(layer, out.clusters * out.dims, out.layers.emplace_back()))
      return Error::corrupt(fmt::format("{}: layers[{}]: expected {} numbers for each head", path,
                                        out.layers.size() - 1, out.clusters * out.dims));
  return out;
}

Result<void> write_routing_centroids(const std::string& path, const RoutingCentroids& centroids,
                                     const std::string& model) {
  CentroidJson layers = CentroidJson::array();
  for (const auto& layer : centroids.layers) {
    CentroidJson& list = layers.emplace_back(CentroidJson::array());
    for (float value : layer) list.push_back(std::round(static_cast<double>(value) * kRounding) / kRounding);
  }
  const CentroidJson json = {{"file", kCentroidFile},
                             {"model", model},
                             {"clusters", centroids.clusters},
                             {"dims", centroids.dims},
                             {"layers", std::move(layers)}};
  return write_whole_file(path, json.dump() + "\n");
}

}  // namespace millrace
