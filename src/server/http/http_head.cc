#include "server/http/http_head.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr size_t kMostLengthDigits = 18;  // fits into 64 bits

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

// What the lines say of Host and framing.
struct Said {
  int hosts = 0, lengths = 0, encodings = 0;
  std::string_view host, length, encoding;
};

std::optional<HeadFault> read_line(std::string_view line, Said& said) {
  if (line.front() == ' ' || line.front() == '\t') return HeadFault{400, "a header may not go on in a second line"};
  const size_t colon = line.find(':');
  if (colon == 0 || colon == std::string_view::npos || !std::ranges::all_of(line.substr(0, colon), is_token))
    return HeadFault{400, "a header must have a name of letters, digits and marks, and a colon right behind it"};
  const std::string_view name = line.substr(0, colon), value = trimmed(line.substr(colon + 1));
  if (std::ranges::any_of(value,
                          [](char c) { return (static_cast<unsigned char>(c) < ' ' && c != '\t') || c == 0x7f; }))
    return HeadFault{400, "a header holds a control character"};
  if (same_text(name, "host")) ++said.hosts, said.host = value;
  if (same_text(name, "content-length")) ++said.lengths, said.length = value;
  if (same_text(name, "transfer-encoding")) ++said.encodings, said.encoding = value;
  return std::nullopt;
}

std::optional<HeadFault> framing_fault(const Said& said, bool old) {
  if (said.lengths > 1) return HeadFault{400, "Content-Length: is there more than once"};
  if (said.lengths == 1 &&
      (said.length.empty() || said.length.size() > kMostLengthDigits || !std::ranges::all_of(said.length, is_digit)))
    return HeadFault{400, "Content-Length: must be a number of bytes"};
  if (said.encodings == 0) return std::nullopt;
  if (said.lengths > 0) return HeadFault{400, "Transfer-Encoding: may not be there beside Content-Length"};
  if (old) return HeadFault{400, "Transfer-Encoding: HTTP/1.0 has none"};
  if (said.encodings > 1 || !same_text(said.encoding, "chunked"))
    return HeadFault{501, "Transfer-Encoding: only chunked is understood"};
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
  if (std::ranges::count(first, ' ') != 2) return HeadFault{400, "not an HTTP request: wants METHOD TARGET VERSION"};
  const bool old = first.ends_with(" HTTP/1.0");
  Said said;
  for (size_t at = line_end + 2; at < head.size();) {
    const size_t end = head.find("\r\n", at);
    if (end == std::string_view::npos || end == at) break;  // the empty line
    if (auto fault = read_line(head.substr(at, end - at), said)) return fault;
    at = end + 2;
  }
  if (said.hosts > 1) return HeadFault{400, "Host: is there more than once"};
  if (said.hosts == 0 && !old) return HeadFault{400, "Host: is missing, which HTTP/1.1 wants"};
  if (!std::ranges::all_of(said.host, is_host))
    return HeadFault{400, "Host: must be a name or an address, and maybe a port"};
  return framing_fault(said, old);
}

}  // namespace millrace
