#include "server/http/multipart.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr size_t kMaxParts = 64;
constexpr size_t kMaxHead = 16 << 10;
constexpr size_t kMaxBoundary = 70;

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return out;
}

std::string_view without_spaces(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// The value of `name` among "; name=value; name2=\"quoted\"", or nullopt.
std::optional<std::string> parameter(std::string_view text, std::string_view name) {
  size_t at = text.find(';');
  while (at != std::string_view::npos && at < text.size()) {
    ++at;
    const size_t equals = text.find('=', at);
    if (equals == std::string_view::npos) return std::nullopt;
    const bool wanted = lower(without_spaces(text.substr(at, equals - at))) == name;
    std::string value;
    at = equals + 1;
    if (at < text.size() && text[at] == '"') {
      for (++at; at < text.size() && text[at] != '"'; ++at) {
        if (text[at] == '\\' && at + 1 < text.size()) ++at;
        value.push_back(text[at]);
      }
      at = text.find(';', std::min(at, text.size()));
    } else {
      const size_t end = text.find(';', at);
      value = without_spaces(text.substr(at, end == std::string_view::npos ? end : end - at));
      at = end;
    }
    if (wanted) return value;
  }
  return std::nullopt;
}

bool read_head(std::string_view head, FormPart& part) {
  while (!head.empty()) {
    const size_t end = head.find("\r\n");
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(end == std::string_view::npos ? head.size() : end + 2);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return false;
    if (lower(line.substr(0, colon)) != "content-disposition") continue;
    const auto name = parameter(line.substr(colon + 1), "name");
    if (!name) return false;
    part.name = *name;
    part.filename = parameter(line.substr(colon + 1), "filename").value_or("");
  }
  return !part.name.empty();
}

}  // namespace

std::optional<std::string> multipart_boundary(std::string_view content_type) {
  if (!lower(content_type).starts_with("multipart/form-data")) return std::nullopt;
  auto boundary = parameter(content_type, "boundary");
  if (!boundary || boundary->empty() || boundary->size() > kMaxBoundary) return std::nullopt;
  return boundary;
}

std::optional<std::vector<FormPart>> parse_multipart(std::string_view body, const std::string& boundary) {
  const std::string first = "--" + boundary, next = "\r\n--" + boundary;
  if (!body.starts_with(first)) return std::nullopt;
  std::vector<FormPart> parts;
  for (size_t at = first.size();;) {
    if (body.substr(at).starts_with("--")) return parts;  // the final boundary
    if (!body.substr(at).starts_with("\r\n") || parts.size() == kMaxParts) return std::nullopt;
    at += 2;
    const size_t head = body.find("\r\n\r\n", at);
    if (head == std::string_view::npos || head - at > kMaxHead) return std::nullopt;
    FormPart part;
    if (!read_head(body.substr(at, head - at), part)) return std::nullopt;
    at = head + 4;
    const size_t end = body.find(next, at);
    if (end == std::string_view::npos) return std::nullopt;
    part.content = body.substr(at, end - at);
    parts.push_back(std::move(part));
    at = end + next.size();
  }
}

}  // namespace millrace
