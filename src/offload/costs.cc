#include "offload/costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

#include "base/json_text.h"
#include "base/ordered_json.h"
#include "base/pending_file.h"

namespace millrace {
namespace {

constexpr int kCostsVersion = 2;

nlohmann::ordered_json passes_json(const std::vector<PassCost>& costs) {
  auto out = nlohmann::ordered_json::array();
  for (const PassCost& cost : costs) out.push_back({cost.rows, cost.seconds_per_byte});
  return out;
}

bool read_passes(const nlohmann::ordered_json& json, std::vector<PassCost>& out) {
  if (!json.is_array() || json.empty() || json.size() > 64) return false;
  for (const auto& one : json) {
    if (!one.is_array() || one.size() != 2 || !one[0].is_number_integer() || !one[1].is_number()) return false;
    const PassCost cost{one[0].get<int64_t>(), one[1].get<double>()};
    const bool ascends = out.empty() ? cost.rows >= 1 : cost.rows > out.back().rows;
    if (!ascends || cost.rows > (1 << 24) || !(cost.seconds_per_byte > 0 && cost.seconds_per_byte < 1)) return false;
    out.push_back(cost);
  }
  return true;
}

}  // namespace

// Linear between the measured passes; a larger pass than the largest takes as long for each token.
double pass_seconds(const std::vector<PassCost>& costs, int64_t rows, double bytes) {
  if (costs.empty()) return 0;
  const auto next = std::ranges::find_if(costs, [&](const PassCost& cost) { return cost.rows >= rows; });
  const auto share = static_cast<double>(rows);
  if (next == costs.end())
    return bytes * costs.back().seconds_per_byte * share / static_cast<double>(costs.back().rows);
  if (next == costs.begin() || next->rows == rows) return bytes * next->seconds_per_byte;
  const PassCost& low = *std::prev(next);
  const double at = (share - static_cast<double>(low.rows)) / static_cast<double>(next->rows - low.rows);
  return bytes * (low.seconds_per_byte + at * (next->seconds_per_byte - low.seconds_per_byte));
}

double overlapped_seconds(const OffloadCosts& costs, double compute, double bytes) {
  return std::max(bytes / costs.read_bytes, compute + bytes * costs.read_work);
}

double decode_seconds(const OffloadCosts& costs, const OffloadModel& model, int64_t rows, double context) {
  const double keys = static_cast<double>(rows) * context * model.key_bytes;
  return pass_seconds(costs.decode, rows, model.token_bytes) + keys / costs.key_bytes;
}

double prefill_seconds(const OffloadCosts& costs, const OffloadModel& model, int64_t rows) {
  return pass_seconds(costs.prefill, rows, model.token_bytes - model.head_bytes);
}

double expert_hits(int64_t experts, double share, double skew) {
  const double held = std::clamp(share, 0.0, 1.0) * static_cast<double>(experts);
  double hits = 0, all = 0;
  for (int64_t i = 0; i < experts; ++i) {
    const double frequency = std::pow(static_cast<double>(i + 1), -skew);
    all += frequency;
    hits += frequency * std::clamp(held - static_cast<double>(i), 0.0, 1.0);
  }
  return all > 0 ? hits / all : 1;
}

double expert_skew_of(int64_t experts, double share, double hits) {
  double low = 0, high = kMaxExpertSkew;
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    (expert_hits(experts, share, middle) < hits ? low : high) = middle;
  }
  return low;
}

double distinct_experts(int64_t experts, int64_t used, int64_t rows) {
  if (experts == 0) return 0;
  const double all = static_cast<double>(experts), left = 1 - static_cast<double>(used) / all;
  return all * (1 - std::pow(left, static_cast<double>(rows)));
}

Result<void> write_costs(const std::string& path, const std::string& key, const OffloadCosts& costs) {
  const nlohmann::ordered_json json = {{"version", kCostsVersion},
                                       {"key", key},
                                       {"decode", passes_json(costs.decode)},
                                       {"prefill", passes_json(costs.prefill)},
                                       {"read_bytes_per_s", costs.read_bytes},
                                       {"expert_bytes_per_s", costs.expert_bytes},
                                       {"cached_bytes_per_s", costs.cached_bytes},
                                       {"write_bytes_per_s", costs.write_bytes},
                                       {"key_bytes_per_s", costs.key_bytes},
                                       {"expert_skew", costs.expert_skew},
                                       {"read_work", costs.read_work}};
  return write_whole_file(path, json.dump(1) + "\n");
}

Result<OffloadCosts> read_costs(const std::string& path, const std::string& key) {
  std::ifstream in(path, std::ios::binary);
  std::string text(1 << 16, '\0');
  in.read(text.data(), std::ssize(text));
  text.resize(static_cast<size_t>(in.gcount()));
  const auto json = parse_json(text);
  const Error other = Error::user(fmt::format("{}: no figures of this model on this machine", path));
  if (!json.is_object() || !json.contains("version") || json["version"] != kCostsVersion || !json.contains("key") ||
      json["key"] != key)
    return other;
  OffloadCosts costs{.measured = true};
  if (!json.contains("decode") || !read_passes(json["decode"], costs.decode)) return other;
  if (!json.contains("prefill") || !read_passes(json["prefill"], costs.prefill)) return other;
  const auto number = [&](const char* name, double min, double max, double& out) {
    const auto found = json.find(name);
    if (found == json.end() || !found->is_number()) return false;
    out = found->get<double>();
    return out >= min && out <= max;
  };
  const bool whole = number("read_bytes_per_s", 1e3, 1e15, costs.read_bytes) &&
                     number("expert_bytes_per_s", 1e3, 1e15, costs.expert_bytes) &&
                     number("cached_bytes_per_s", 1e3, 1e15, costs.cached_bytes) &&
                     number("write_bytes_per_s", 1e3, 1e15, costs.write_bytes) &&
                     number("key_bytes_per_s", 1e3, 1e15, costs.key_bytes) &&
                     number("expert_skew", 0, kMaxExpertSkew, costs.expert_skew) &&
                     number("read_work", 0, 1, costs.read_work);
  if (!whole) return other;
  return costs;
}

}  // namespace millrace
