// The contents of a golden folder's expected.json, and the error of a result against it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/ordered_json.h"
#include "millrace/token.h"
#include "shared_data.h"

namespace millrace::testing {

inline std::vector<float> decode_floats(const std::string& base64) {
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (char c : base64) {
    int value = c >= 'A' && c <= 'Z'   ? c - 'A'
                : c >= 'a' && c <= 'z' ? c - 'a' + 26
                : c >= '0' && c <= '9' ? c - '0' + 52
                : c == '+'             ? 62
                : c == '/'             ? 63
                                       : -1;
    if (value < 0) break;
    bits = bits << 6 | static_cast<uint32_t>(value);
    if ((count += 6) >= 8) bytes.push_back(static_cast<char>(bits >> (count -= 8)));
  }
  std::vector<float> out(bytes.size() / 4);
  std::memcpy(out.data(), bytes.data(), out.size() * 4);
  return out;
}

struct Expected {
  std::vector<TokenId> tokens;
  std::vector<TokenId> greedy;
  std::vector<float> logits;
};

inline Expected read_expected(const std::filesystem::path& folder) {
  auto json = nlohmann::json::parse(read_file(folder / "expected.json"));
  return {json["tokens"].get<std::vector<TokenId>>(), json.value("greedy", std::vector<TokenId>()),
          decode_floats(json["logits"].get<std::string>())};
}

// max |difference| / max |logit|
inline double relative_error(const std::vector<float>& got, const std::vector<float>& want) {
  double worst = 0, largest = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    double difference = std::abs(static_cast<double>(got[i]) - want[i]);
    worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
    largest = std::max(largest, std::abs(static_cast<double>(want[i])));
  }
  return worst / largest;
}

}  // namespace millrace::testing
