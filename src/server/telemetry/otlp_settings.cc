#include "server/telemetry/otlp_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace millrace {
namespace {

constexpr size_t kMaxHeaders = 64;
constexpr int64_t kMaxTimeoutMs = 600000;

bool is_token(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

std::string_view stripped(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// The format of W3C Baggage: name=value,name=value.
Result<HttpHeaders> parse_headers(const std::string& name, std::string_view list) {
  HttpHeaders out;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    const std::string_view one = stripped(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
    if (one.empty()) continue;
    const size_t mark = one.find('=');
    const std::string_view key = stripped(one.substr(0, mark));
    const auto value = mark == std::string_view::npos ? std::nullopt : percent_decoded(stripped(one.substr(mark + 1)));
    const bool good =
        value && is_token(key) && std::ranges::all_of(*value, [](char c) { return c >= ' ' && c < 0x7F; });
    if (!good || out.size() >= kMaxHeaders)
      return Error::user(
          name + ": expected at most 64 headers as NAME=VALUE,NAME=VALUE, percent-encoded");  // the value may be secret
    out.emplace_back(key, *value);
  }
  return out;
}

}  // namespace

Result<OtlpSettings> with_otlp_environment(OtlpSettings settings,
                                           const std::function<const char*(const char* name)>& variable) {
  const auto get = [&](const std::string& name) {
    const char* text = variable(name.c_str());
    return std::string(text ? text : "");
  };
  if (get("OTEL_SDK_DISABLED") == "true") return settings;
  // The name and value of the variable that applies.
  const auto of_traces = [&](const std::string& what) -> std::pair<std::string, std::string> {
    const std::string special = "OTEL_EXPORTER_OTLP_TRACES_" + what, general = "OTEL_EXPORTER_OTLP_" + what;
    if (std::string text = get(special); !text.empty()) return {special, std::move(text)};
    return {general, get(general)};
  };
  if (settings.endpoint.empty()) {
    settings.endpoint = get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
    if (std::string base = get("OTEL_EXPORTER_OTLP_ENDPOINT"); settings.endpoint.empty() && !base.empty()) {
      while (base.ends_with('/')) base.pop_back();
      settings.endpoint = base + "/v1/traces";
    }
    if (settings.endpoint.empty()) return settings;
    const auto [name, protocol] = of_traces("PROTOCOL");
    if (!protocol.empty() && protocol != "http/json")
      return Error::unsupported(
          fmt::format("{}: only http/json is supported, not '{}'; set it to http/json, or unset the endpoint", name,
                      protocol.substr(0, 40)));
  }
  if (settings.ca_file.empty()) settings.ca_file = of_traces("CERTIFICATE").second;
  if (const auto [name, text] = of_traces("HEADERS"); settings.headers.empty() && !text.empty()) {
    MILLRACE_TRY(settings.headers, parse_headers(name, text));
  }
  if (const auto [name, text] = of_traces("TIMEOUT"); !text.empty()) {
    int64_t ms = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), ms);
    if (status != std::errc() || end != text.data() + text.size() || ms < 1 || ms > kMaxTimeoutMs)
      return Error::user(
          fmt::format("{}: must be 1 to {} milliseconds, got '{}'", name, kMaxTimeoutMs, text.substr(0, 40)));
    settings.timeout = std::chrono::milliseconds(ms);
  }
  return settings;
}

}  // namespace millrace
