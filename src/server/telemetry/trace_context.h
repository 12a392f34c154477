// W3C Trace Context: which trace a request belongs to, from its traceparent header, and the ids of our own spans.
//
//   00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
//   |  trace id                         parent's span    flags: 1 = sampled
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace millrace {

struct TraceContext {
  std::string trace_id;  // 32 hexadecimal digits, lower case
  std::string span_id;   // 16; as parsed, the parent's
  bool sampled = true;

  std::string header() const;  // as traceparent and traceresponse have it
};

// Nothing where the header is not what the specification says; it is then as if there were none.
std::optional<TraceContext> parse_traceparent(std::string_view header);

// Not all zero.
std::string new_trace_id();
std::string new_span_id();

}  // namespace millrace
