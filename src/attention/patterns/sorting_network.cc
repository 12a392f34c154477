#include "attention/patterns/sorting_network.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "attention/block_marks.h"
#include "attention/dynamic_pattern.h"
#include "attention/patterns/fitted_text.h"
#include "base/json_text.h"

namespace millrace {
namespace {

using SortJson = nlohmann::ordered_json;

constexpr const char* kSortFile = "millrace sorting network";
constexpr int64_t kMaxSortHeads = 1024;

// False: not `count` finite numbers.
bool read_numbers(const SortJson& json, int64_t count, std::vector<float>& out) {
  if (!json.is_array() || std::ssize(json) != count) return false;
  out.reserve(json.size());
  for (const SortJson& one : json) {
    if (!one.is_number() || !(std::fabs(one.get<double>()) <= 1e6)) return false;
    out.push_back(static_cast<float>(one.get<double>()));
  }
  return true;
}

bool read_sort_layer(const SortJson& json, const SortingNetwork& of, SortingNetwork::Layer& out) {
  if (!json.is_object() || !json.contains("a") || !json["a"].is_array()) return false;
  const int64_t values = std::ssize(json["a"]), heads = values / of.hidden;
  if (values % of.hidden != 0 || heads > kMaxSortHeads) return false;
  const auto read = [&](const char* name, int64_t each, std::vector<float>& to) {
    return json.contains(name) && read_numbers(json[name], heads * each, to);
  };
  return read("A", of.hidden * of.dims, out.pool) && read("a", of.hidden, out.pool_bias) &&
         read("B", of.blocks * of.hidden, out.sort) && read("b", of.blocks, out.sort_bias);
}

float sum_of_products(const float* a, const float* b, int64_t count) {
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

std::string SortingNetwork::digest() const {
  XXH64_hash_t hash = static_cast<XXH64_hash_t>(hidden);
  for (const Layer& layer : layers)
    for (const auto* part : {&layer.pool, &layer.pool_bias, &layer.sort, &layer.sort_bias})
      hash = XXH3_64bits_withSeed(part->data(), part->size() * sizeof(float), hash);
  return fmt::format("{:016x}", hash);
}

void SortingNetwork::score(int64_t layer, int64_t head, std::span<const float> x, std::span<float> scores,
                           std::span<float> work) const {
  const Layer& of = layers[static_cast<size_t>(layer)];
  const auto relu = [](float value) { return std::max(0.0f, value); };
  for (int64_t h = 0; h < hidden; ++h) {
    const int64_t row = head * hidden + h;
    work[static_cast<size_t>(h)] = relu(sum_of_products(&of.pool[static_cast<size_t>(row * dims)], x.data(), dims) +
                                        of.pool_bias[static_cast<size_t>(row)]);
  }
  for (int64_t j = 0; j < std::ssize(scores); ++j) {
    const int64_t row = head * blocks + j;
    scores[static_cast<size_t>(j)] =
        j < blocks ? relu(sum_of_products(&of.sort[static_cast<size_t>(row * hidden)], work.data(), hidden) +
                          of.sort_bias[static_cast<size_t>(row)])
                   : 0.0f;
  }
}

Result<SortingNetwork> read_sorting_network(const std::string& path) {
  MILLRACE_TRY(const std::string text, read_fitted_text(path));
  const SortJson json = parse_json(text);
  if (!json.is_object() || json.value("file", SortJson()) != kSortFile)
    return Error::corrupt(fmt::format("{}: has no sorting network", path));
  SortingNetwork out;
  for (const auto& [key, most, to] : {std::tuple{"dims", kMaxDynamicDim, &out.dims},
                                      {"hidden", kMaxSortHidden, &out.hidden},
                                      {"blocks", kMaxPatternBlocks, &out.blocks}}) {
    const SortJson value = json.value(key, SortJson());
    if (!value.is_number_integer() || value < 1 || value > most)
      return Error::corrupt(fmt::format("{}: {}: must be 1 to {}", path, key, most));
    *to = value.get<int64_t>();
  }
  const auto layers = json.find("layers");
  if (layers == json.end() || !layers->is_array() || layers->empty())
    return Error::corrupt(fmt::format("{}: layers: no list", path));
  for (const SortJson& layer : *layers)
    if (!read_sort_layer(layer, out, out.layers.emplace_back()))
      return Error::corrupt(
          fmt::format("{}: layers[{}]: A, a, B and b must be numbers of whole heads", path, out.layers.size() - 1));
  return out;
}

}  // namespace millrace
