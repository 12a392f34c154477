#include "kv/codecs/kvquant_levels.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include "base/json_text.h"
#include "base/pending_file.h"
#include "tensor/half.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFileKind = "millrace KV levels";
constexpr int64_t kMaxFileBytes = 1 << 20;

Result<std::string> read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error::user(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  std::string text(static_cast<size_t>(kMaxFileBytes) + 1, '\0');
  file.read(text.data(), std::ssize(text));
  text.resize(static_cast<size_t>(file.gcount()));
  if (std::ssize(text) > kMaxFileBytes) return Error::corrupt(fmt::format("{}: is longer than any KV levels", path));
  return text;
}

Result<NormalCodes> codes_of(const Json& layer, const char* part, int bits) {
  const auto wrong = [&] {
    return Error::corrupt(fmt::format("{}: expected {} ascending numbers from -1 to 1", part, 1 << bits));
  };
  const auto found = layer.find(part);
  if (found == layer.end() || !found->is_array() || std::ssize(*found) != 1 << bits) return wrong();
  NormalCodes out{};
  float before = -INFINITY;
  for (size_t i = 0; i < found->size(); ++i) {
    const Json& one = (*found)[i];
    if (!one.is_number()) return wrong();
    const double value = one.get<double>();
    if (!(std::fabs(value) <= 1)) return wrong();
    out[i] = f16_to_f32(f32_to_f16(static_cast<float>(value)));
    if (out[i] < before) return wrong();
    before = out[i];
  }
  return out;
}

Json list_of(const NormalCodes& codes, int bits) {
  Json out = Json::array();
  for (size_t i = 0; i < size_t{1} << bits; ++i) out.push_back(codes[i]);
  return out;
}

}  // namespace

std::string KvQuantLevels::digest() const {
  if (layers.empty()) return "";
  return fmt::format("{:016x}", XXH3_64bits(layers.data(), layers.size() * sizeof(KvQuantCodes)));
}

Result<KvQuantLevels> read_kvquant_levels(const std::string& path) {
  MILLRACE_TRY(const std::string text, read_text(path));
  const Json json = parse_json(text);
  if (!json.is_object() || json.value("file", Json()) != kFileKind)
    return Error::corrupt(fmt::format("{}: has no KV levels; millrace kv-levels makes such a file", path));
  const Json bits = json.value("bits", Json()), layers = json.value("layers", Json());
  KvQuantLevels out;
  if (!bits.is_number_integer() || bits < 2 || bits > 4)
    return Error::corrupt(fmt::format("{}: bits: must be 2, 3 or 4", path));
  out.bits = bits.get<int>();
  if (!layers.is_array() || layers.empty()) return Error::corrupt(fmt::format("{}: layers: no list", path));
  for (const Json& layer : layers) {
    auto keys = codes_of(layer, "keys", out.bits), values = codes_of(layer, "values", out.bits);
    for (const auto* one : {&keys, &values})
      if (!one->ok())
        return Error::corrupt(fmt::format("{}: layers[{}].{}", path, out.layers.size(), one->error().message));
    out.layers.push_back({*keys, *values});
  }
  return out;
}

Result<void> write_kvquant_levels(const std::string& path, const KvQuantLevels& levels, const std::string& model) {
  Json layers = Json::array();
  for (const KvQuantCodes& codes : levels.layers)
    layers.push_back({{"keys", list_of(codes.keys, levels.bits)}, {"values", list_of(codes.values, levels.bits)}});
  const Json json = {{"file", kFileKind}, {"model", model}, {"bits", levels.bits}, {"layers", std::move(layers)}};
  return write_whole_file(path, json.dump() + "\n");
}

}  // namespace millrace
