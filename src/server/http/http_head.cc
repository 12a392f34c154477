#include "server/http/http_head.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr size_t kMaxLengthDigits = 18;  // fits in 64 bits

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alnum(char c) { return is_digit(c) || (lower(c) >= 'a' && lower(c) <= 'z'); }
bool is_token(char c) { return is_alnum(c) || std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos; }
bool is_host(char c) { return is_alnum(c) || std::string_view("-._~:[]%").find(c) != std::string_view::npos; }

bool same_text(std::string_view text, std::string_view lower_case) {
  return std::ranges::equal(text, lower_case, [](char a, char b) { return lower(a) == b; });
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view()
                                         : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// The header fields for Host and framing.
struct FramingFields {
  int hosts = 0, lengths = 0, encodings = 0;
  std::string_view host, length, encoding;
};

std::optional<HeadFault> read_line(std::string_view line, FramingFields& fields) {
  if (line.front() == ' ' || line.front() == '\t') return HeadFault{400, "a header must not continue on a second line"};
  const size_t colon = line.find(':');
  if (colon == 0 || colon == std::string_view::npos || !std::ranges::all_of(line.substr(0, colon), is_token))
    return HeadFault{
        400,
        "a header name must consist of letters, digits and token characters and be followed immediately by a colon"};
  const std::string_view name = line.substr(0, colon), value = trimmed(line.substr(colon + 1));
  if (std::ranges::any_of(value,
                          [](char c) { return (static_cast<unsigned char>(c) < ' ' && c != '\t') || c == 0x7f; }))
    return HeadFault{400, "a header contains a control character"};
  if (same_text(name, "host")) ++fields.hosts, fields.host = value;
  if (same_text(name, "content-length")) ++fields.lengths, fields.length = value;
  if (same_text(name, "transfer-encoding")) ++fields.encodings, fields.encoding = value;
  return std::nullopt;
}

std::optional<HeadFault> framing_fault(const FramingFields& fields, bool old) {
  if (fields.lengths > 1) return HeadFault{400, "Content-Length: appears more than once"};
  if (fields.lengths == 1 && (fields.length.empty() || fields.length.size() > kMaxLengthDigits ||
                              !std::ranges::all_of(fields.length, is_digit)))
    return HeadFault{400, "Content-Length: must be a number of bytes"};
  if (fields.encodings == 0) return std::nullopt;
  if (fields.lengths > 0) return HeadFault{400, "Transfer-Encoding: must not be combined with Content-Length"};
  if (old) return HeadFault{400, "Transfer-Encoding: is not part of HTTP/1.0"};
  if (fields.encodings > 1 || !same_text(fields.encoding, "chunked"))
    return HeadFault{501, "Transfer-Encoding: only chunked is supported"};
  return std::nullopt;
}

}  // namespace

size_t skipped_line_ends(std::string_view bytes) { return std::min(bytes.find_first_not_of("\r\n"), bytes.size()); }

size_t head_bytes(std::string_view bytes) {
  const size_t end = bytes.find("\r\n\r\n");
  return end == std::string_view::npos ? end : end + 4;
}

std::optional<HeadFault> head_fault(std::string_view head) {
  const size_t line_end = head.find("\r\n");
  if (line_end == std::string_view::npos) return HeadFault{400, "not an HTTP request"};
  for (size_t i = 0; i < head.size(); ++i)
    if ((head[i] == '\n' && (i == 0 || head[i - 1] != '\r')) ||
        (head[i] == '\r' && (i + 1 == head.size() || head[i + 1] != '\n')))
      return HeadFault{400, "the lines of a head must end in CR LF"};
  const std::string_view first = head.substr(0, line_end);
  if (std::ranges::count(first, ' ') != 2) return HeadFault{400, "not an HTTP request: expected METHOD TARGET VERSION"};
  const bool old = first.ends_with(" HTTP/1.0");
  FramingFields fields;
  for (size_t at = line_end + 2; at < head.size();) {
    const size_t end = head.find("\r\n", at);
    if (end == std::string_view::npos || end == at) break;  // the empty line
    if (auto fault = read_line(head.substr(at, end - at), fields)) return fault;
    at = end + 2;
  }
  if (fields.hosts > 1) return HeadFault{400, "Host: appears more than once"};
  if (fields.hosts == 0 && !old) return HeadFault{400, "Host: is missing but required by HTTP/1.1"};
  if (!std::ranges::all_of(fields.host, is_host))
    return HeadFault{400, "Host: must be a name or an address, optionally with a port"};
  return framing_fault(fields, old);
}

}  // namespace millrace
