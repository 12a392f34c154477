// Where spans go, from the command line and from OpenTelemetry's standard variables, of which those for traces alone
// win:
//
//   OTEL_EXPORTER_OTLP_[TRACES_]ENDPOINT      the general one is a base, to which /v1/traces is added
//   OTEL_EXPORTER_OTLP_[TRACES_]HEADERS       name=value,name=value, percent-encoded
//   OTEL_EXPORTER_OTLP_[TRACES_]CERTIFICATE   authorities to trust in the place of the system's, PEM
//   OTEL_EXPORTER_OTLP_[TRACES_]TIMEOUT       milliseconds
//   OTEL_EXPORTER_OTLP_[TRACES_]PROTOCOL      http/json is what is spoken
//   OTEL_SDK_DISABLED                         true: none of these counts
//
// Flags win over all of them.
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

// Fills in what `settings` lacks. `variable` is null where there is none of that name. Errors: user, unsupported (of
// the protocol, where no flag names the endpoint).
Result<OtlpSettings> with_otlp_environment(OtlpSettings settings,
                                           const std::function<const char*(const char* name)>& variable);

}  // namespace millrace
