#include "kv/transfer/block_ticket.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace millrace {
namespace {

template <typename Number>
bool read_number(std::string_view text, Number& out, int base) {
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), out, base);
  return status == std::errc() && end == text.data() + text.size() && !text.empty();
}

bool read_place(std::string_view text, BlockTicket& out) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || text.size() > 300) return false;
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const auto plain = [](char c) { return c > ' ' && c < 0x7f && c != '/' && c != '@'; };
  out.host = std::string(host);
  return !host.empty() && std::ranges::all_of(host, plain) && read_number(text.substr(colon + 1), out.port, 10) &&
         out.port > 0 && out.port < 65536;
}

}  // namespace

std::string BlockTicket::text() const {
  const bool brackets = host.find(':') != std::string::npos;
  return fmt::format("from={}{}{}:{}, lease={:016x}, key={:016x}{:016x}, blocks={}", brackets ? "[" : "", host,
                     brackets ? "]" : "", port, lease, key.high, key.low, blocks);
}

std::optional<BlockTicket> BlockTicket::parse(std::string_view text) {
  BlockTicket out;
  int fields = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find(", "), text.size());
    const std::string_view field = text.substr(0, end);
    text.remove_prefix(std::min(end + 2, text.size()));
    const size_t equals = std::min(field.find('='), field.size());
    const std::string_view name = field.substr(0, equals);
    const std::string_view value = field.substr(std::min(equals + 1, field.size()));
    bool good = false;
    if (name == "from") good = read_place(value, out);
    if (name == "lease") good = read_number(value, out.lease, 16);
    if (name == "key" && value.size() == 32)
      good = read_number(value.substr(0, 16), out.key.high, 16) && read_number(value.substr(16), out.key.low, 16);
    if (name == "blocks") good = read_number(value, out.blocks, 10) && out.blocks > 0;
    if (!good) return std::nullopt;
    ++fields;
  }
  if (fields != 4 || out.port == 0 || out.blocks == 0) return std::nullopt;
  return out;
}

}  // namespace millrace
