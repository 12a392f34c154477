#include "server/telemetry/otlp_settings.h"

#include <gtest/gtest.h>

#include <map>

namespace millrace {
namespace {

using Variables = std::map<std::string, std::string>;

Result<OtlpSettings> with(const Variables& variables, OtlpSettings settings = {}) {
  return with_otlp_environment(std::move(settings), [&](const char* name) {
    return variables.contains(name) ? variables.at(name).c_str() : nullptr;
  });
}

TEST(OtlpSettings, WithoutVariablesFlagsApply) {
  EXPECT_EQ(with({})->endpoint, "");
  EXPECT_EQ(with({}, {.endpoint = "http://a/v1/traces", .ca_file = "ca.pem"})->ca_file, "ca.pem");
}

TEST(OtlpSettings, StandardVariables) {
  const auto one = with({{"OTEL_EXPORTER_OTLP_ENDPOINT", "https://a:4318/"},
                         {"OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b, x = y"},
                         {"OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"},
                         {"OTEL_EXPORTER_OTLP_TIMEOUT", "250"}});
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->endpoint, "https://a:4318/v1/traces");
  EXPECT_EQ(one->headers, (HttpHeaders{{"api-key", "a b"}, {"x", "y"}}));
  EXPECT_EQ(one->ca_file, "/ca.pem");
  EXPECT_EQ(one->timeout.count(), 250);
}

TEST(OtlpSettings, TracesVariablesOverrideGeneralOnesAndFlagsOverrideAll) {
  const Variables both = {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://a"},
                          {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://b/in"},
                          {"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"},
                          {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"}};
  EXPECT_EQ(with(both)->endpoint, "http://b/in");
  EXPECT_EQ(with(both, {.endpoint = "http://c/d"})->endpoint, "http://c/d");
  Variables off = both;
  off["OTEL_SDK_DISABLED"] = "true";
  EXPECT_EQ(with(off)->endpoint, "");
}

TEST(OtlpSettings, ErrorsNameTheVariable) {
  const auto refused = [](const Variables& variables) {
    const auto done = with(variables, {.endpoint = "http://a/"});
    return done.ok() ? std::string() : done.error().message;
  };
  for (const std::string headers : {"no value", "a=b%", "a b=c", "a=b%0ac", "=x"}) {
    const std::string message = refused({{"OTEL_EXPORTER_OTLP_HEADERS", headers}});
    EXPECT_NE(message.find("OTEL_EXPORTER_OTLP_HEADERS"), std::string::npos) << headers;
  }
  for (const std::string timeout : {"0", "-1", "soon", "1e3", "99999999"})
    EXPECT_NE(refused({{"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", timeout}}).find("TRACES_TIMEOUT"), std::string::npos)
        << timeout;
  const auto grpc = with({{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4317"}, {"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"}});
  ASSERT_FALSE(grpc.ok());
  EXPECT_EQ(grpc.error().kind, ErrorKind::unsupported);
}

}  // namespace
}  // namespace millrace
