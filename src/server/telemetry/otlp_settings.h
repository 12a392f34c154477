// The destination of trace spans, from the command line and OpenTelemetry's standard environment variables. The TRACES_
// variables override the general ones:
//
//   OTEL_EXPORTER_OTLP_[TRACES_]ENDPOINT      /v1/traces is appended to the general one
//   OTEL_EXPORTER_OTLP_[TRACES_]HEADERS       name=value,name=value, percent-encoded
//   OTEL_EXPORTER_OTLP_[TRACES_]CERTIFICATE   PEM file of authorities to trust instead of the system's
//   OTEL_EXPORTER_OTLP_[TRACES_]TIMEOUT       milliseconds
//   OTEL_EXPORTER_OTLP_[TRACES_]PROTOCOL      only http/json is supported
//   OTEL_SDK_DISABLED                         true: ignores all of these
//
// Command-line flags override all of them.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "base/result.h"
#include "server/http/http.h"

namespace millrace {

struct OtlpSettings {
  std::string endpoint;  // "": no spans
  std::string ca_file;   // "": the system's authorities
  HttpHeaders headers;
  std::chrono::milliseconds timeout{5000};
};

// Fills in missing `settings`. `variable` returns null for an unset variable. Errors: user, unsupported (the protocol,
// unless a flag gives the endpoint).
Result<OtlpSettings> with_otlp_environment(OtlpSettings settings,
                                           const std::function<const char*(const char* name)>& variable);

}  // namespace millrace
