#include "offload/expert_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>

#include "base/json_text.h"
#include "base/ordered_json.h"
#include "base/pending_file.h"

namespace millrace {
namespace {

constexpr int kProfileVersion = 1;
constexpr int64_t kMaxProfileBytes = int64_t{16} << 20;
constexpr int64_t kMaxUses = int64_t{1} << 50;

bool read_uses(const nlohmann::ordered_json& json, std::vector<int64_t>& out) {
  if (!json.is_array()) return false;
  for (const auto& one : json) {
    if (!one.is_number_unsigned() || one.get<uint64_t>() > static_cast<uint64_t>(kMaxUses)) return false;
    out.push_back(one.get<int64_t>());
  }
  return true;
}

}  // namespace

Result<ExpertProfile> read_expert_profile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return Error::user(fmt::format("{}: cannot be read; millrace offload profile writes such a file", path));
  std::string text(static_cast<size_t>(kMaxProfileBytes), '\0');
  in.read(text.data(), std::ssize(text));
  text.resize(static_cast<size_t>(in.gcount()));
  const auto json = parse_json(text);
  const Error other =
      Error::user(fmt::format("{}: is no profile of experts; millrace offload profile writes one", path));
  if (!json.is_object() || !json.contains("version") || json["version"] != kProfileVersion ||
      !json.contains("tokens") || !json["tokens"].is_number_unsigned() || !json.contains("uses") ||
      !json["uses"].is_array())
    return other;
  ExpertProfile out;
  if (json["tokens"].get<uint64_t>() > static_cast<uint64_t>(kMaxUses)) return other;
  out.tokens = json["tokens"].get<int64_t>();
  for (const auto& layer : json["uses"])
    if (!read_uses(layer, out.uses.emplace_back())) return other;
  return out;
}

Result<void> write_expert_profile(const std::string& path, const ExpertProfile& profile) {
  const nlohmann::ordered_json json = {
      {"version", kProfileVersion}, {"tokens", profile.tokens}, {"uses", profile.uses}};
  return write_whole_file(path, json.dump() + "\n");
}

std::vector<bool> cold_by_uses(std::span<const int64_t> uses, double hot) {
  std::vector<size_t> order(uses.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return uses[a] > uses[b]; });
  const auto kept = static_cast<size_t>(std::llround(hot * static_cast<double>(uses.size())));
  std::vector<bool> cold(uses.size(), true);
  for (size_t i = 0; i < std::min(kept, order.size()); ++i) cold[order[i]] = false;
  return cold;
}

double cold_share(const ExpertProfile& profile, double hot) {
  int64_t all = 0, cold_uses = 0;
  for (const std::vector<int64_t>& uses : profile.uses) {
    const std::vector<bool> cold = cold_by_uses(uses, hot);
    for (size_t e = 0; e < uses.size(); ++e) {
      all += uses[e];
      if (cold[e]) cold_uses += uses[e];
    }
  }
  return all > 0 ? static_cast<double>(cold_uses) / static_cast<double>(all) : 0;
}

}  // namespace millrace
