// AnswerIdentity: what makes two answers to one request differ although their tokens are the same: the id, the time,
// and the seed if the request gives none. A router sends it along in a header, so that another node can repeat an
// answer of a node that was lost, byte for byte. Any client may send it: it changes nothing but the client's own
// answer.
//
//   Millrace-Answer: id=5f0c..., created=1764500000, seed=123456789
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace millrace {

struct AnswerIdentity {
  static constexpr const char* kHeader = "Millrace-Answer";

  std::string id;       // without an API's prefix
  int64_t created = 0;  // Unix seconds
  uint64_t seed = 0;

  std::string text() const;
  // The value of the header; nothing if it is malformed.
  static std::optional<AnswerIdentity> parse(std::string_view text);
};

}  // namespace millrace
