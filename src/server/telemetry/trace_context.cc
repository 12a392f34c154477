#include "server/telemetry/trace_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

namespace millrace {
namespace {

constexpr size_t kLength = 55;

bool is_hex(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}
bool is_zero(std::string_view text) { return text.find_first_not_of('0') == std::string_view::npos; }

uint64_t random_bits() {
  thread_local std::mt19937_64 source{std::random_device{}() ^ (static_cast<uint64_t>(std::random_device{}()) << 32)};
  for (;;)
    if (const uint64_t bits = source(); bits != 0) return bits;
}

}  // namespace

std::string TraceContext::header() const { return fmt::format("00-{}-{}-{:02x}", trace_id, span_id, sampled ? 1 : 0); }

std::optional<TraceContext> parse_traceparent(std::string_view h) {
  if (h.size() < kLength || h.size() > 512 || h[2] != '-' || h[35] != '-' || h[52] != '-') return std::nullopt;
  const auto version = h.substr(0, 2), trace = h.substr(3, 32), parent = h.substr(36, 16), flags = h.substr(53, 2);
  if (!is_hex(version) || !is_hex(trace) || !is_hex(parent) || !is_hex(flags)) return std::nullopt;
  if (version == "ff" || is_zero(trace) || is_zero(parent)) return std::nullopt;
  // Later versions may append fields after another dash; version 00 may not.
  if (h.size() > kLength && (version == "00" || h[kLength] != '-')) return std::nullopt;
  const char last = flags[1];
  const int digit = last <= '9' ? last - '0' : last - 'a' + 10;
  return TraceContext{std::string(trace), std::string(parent), (digit & 1) != 0};
}

std::string new_trace_id() { return fmt::format("{:016x}{:016x}", random_bits(), random_bits()); }
std::string new_span_id() { return fmt::format("{:016x}", random_bits()); }

}  // namespace millrace
