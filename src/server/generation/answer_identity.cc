#include "server/generation/answer_identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace millrace {
namespace {

constexpr size_t kMaxIdBytes = 64;

// Takes "NAME=VALUE" off the beginning of `text`, and the comma behind it.
std::optional<std::string_view> take_value(std::string_view& text, std::string_view name) {
  if (!text.starts_with(name) || text.size() == name.size() || text[name.size()] != '=') return std::nullopt;
  text.remove_prefix(name.size() + 1);
  const size_t end = std::min(text.find(','), text.size());
  const std::string_view value = text.substr(0, end);
  text.remove_prefix(std::min(text.size(), end + 1));
  while (text.starts_with(' ')) text.remove_prefix(1);
  return value;
}

template <typename Number>
bool read_number(std::string_view text, Number& out) {
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), out);
  return status == std::errc() && end == text.data() + text.size() && out >= 0;
}

}  // namespace

std::string AnswerIdentity::text() const { return fmt::format("id={}, created={}, seed={}", id, created, seed); }

std::optional<AnswerIdentity> AnswerIdentity::parse(std::string_view text) {
  AnswerIdentity out;
  const auto id = take_value(text, "id");
  if (!id || id->empty() || id->size() > kMaxIdBytes) return std::nullopt;
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  };
  if (!std::ranges::all_of(*id, plain)) return std::nullopt;
  out.id = *id;
  const auto created = take_value(text, "created");
  if (!created || !read_number(*created, out.created)) return std::nullopt;
  const auto seed = take_value(text, "seed");
  if (!seed || !read_number(*seed, out.seed) || !text.empty()) return std::nullopt;
  return out;
}

}  // namespace millrace
