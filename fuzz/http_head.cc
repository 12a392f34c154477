// Fuzzes HTTP request heads. An accepted head must be unambiguous according to an independent check here, and the HTTP
// parser must read the same request from it.
#include "server/http/http_head.h"

#include <algorithm>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace {

namespace http = boost::beast::http;

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const size_t skipped = millrace::skipped_line_ends(bytes);
  const std::string_view rest = std::string_view(bytes).substr(skipped);
  const size_t end = millrace::head_bytes(rest);
  if (end == std::string_view::npos) return 0;
  const std::string head(rest.substr(0, end));
  if (const auto fault = millrace::head_fault(head)) {
    if ((fault->status != 400 && fault->status != 501) || fault->message.empty()) std::abort();
    return 0;
  }
  http::request_parser<http::string_body> parser;
  boost::system::error_code failed;
  const size_t used = parser.put(boost::asio::buffer(head), failed);
  if (failed) return 0;  // the parser may be stricter
  if (used != head.size() || !parser.is_header_done()) std::abort();
  int hosts = 0, lengths = 0, encodings = 0;
  std::string length, encoding;
  for (const auto& field : parser.get()) {
    const std::string name = lower(std::string(field.name_string()));
    if (name == "host") ++hosts;
    if (name == "content-length") ++lengths, length = std::string(field.value());
    if (name == "transfer-encoding") ++encodings, encoding = lower(std::string(field.value()));
  }
  if (hosts > 1 || (hosts == 0 && parser.get().version() >= 11)) std::abort();
  if (lengths > 1 || encodings > 1 || lengths + encodings > 1) std::abort();
  if (encodings == 1 && (encoding != "chunked" || !parser.chunked() || parser.get().version() < 11)) std::abort();
  if (lengths == 1 && (!std::ranges::all_of(length, [](char c) { return c >= '0' && c <= '9'; }) ||
                       parser.content_length().value_or(0) != std::stoull(length)))
    std::abort();
  if (lengths + encodings == 0 && !parser.is_done()) std::abort();
  if (std::ranges::count(head, '\n') != 1 + std::distance(parser.get().begin(), parser.get().end()) + 1)
    std::abort();  // one line per header field
  return 0;
}
