#include "server/api/message_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace millrace {
namespace {

constexpr const char* kRoles[] = {"system", "developer", "user", "assistant", "tool", "function"};

// "" if absent.
std::string string_field(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

std::optional<ApiError> check_role(const std::string& where, const std::string& role) {
  if (std::ranges::find(kRoles, role) != std::end(kRoles)) return std::nullopt;
  return ApiError::bad(where, fmt::format("must be one of {}; got '{}'", fmt::join(kRoles, ", "), role.substr(0, 64)));
}

std::optional<ApiError> check_tool_messages(const Json& messages, size_t first, const char* field, const char* id) {
  std::set<std::string> called;
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    if (const auto calls = message.find("tool_calls"); calls != message.end() && calls->is_array())
      for (const Json& call : *calls)
        if (call.is_object()) called.insert(string_field(call, "id"));
    if (i < first || string_field(message, "role") != "tool") continue;
    const std::string answered = string_field(message, "tool_call_id");
    if (answered.empty())
      return ApiError::bad(field,
                           fmt::format("a tool message must name the call that it answers in {}, as a string", id));
    if (!called.contains(answered))
      return ApiError::bad(field, fmt::format("{} '{}' does not match an earlier call", id, answered.substr(0, 100)));
  }
  return std::nullopt;
}

}  // namespace millrace
