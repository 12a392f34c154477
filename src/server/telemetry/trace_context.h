// W3C Trace Context: parses the traceparent header and creates ids for our own spans.
//
//   00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
//   |  trace id                         parent span      flags: 1 = sampled
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace millrace {

struct TraceContext {
  std::string trace_id;  // 32 hexadecimal digits, lower case
  std::string span_id;   // 16 hexadecimal digits; after parsing, the parent's
  bool sampled = true;

  std::string header() const;  // value of traceparent and traceresponse
};

// nullopt if the header is invalid; the specification says to ignore it then.
std::optional<TraceContext> parse_traceparent(std::string_view header);

// Never all zero.
std::string new_trace_id();
std::string new_span_id();

}  // namespace millrace
