// Compares with renderings by Python's jinja2, stored outside the repository: skipped if they are absent.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/ordered_json.h"
#include "shared_data.h"
#include "text/template/chat_template.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kFrozenClock = 1752148800;  // 2025-07-10 12:00 UTC

Json read_json(const char* name) {
  return Json::parse(testing::read_maybe_xz(testing::shared_data() / "chat-templates" / name), nullptr, false);
}

Result<std::string> render(const std::string& source, const Json& context) {
  RenderOptions options;
  options.now_unix_seconds = kFrozenClock;
  auto parsed = ChatTemplate::parse(source);
  if (!parsed.ok()) return parsed.error();
  return parsed->render(context, options);
}

// Expects the text, or any error if `expected` is null.
void expect(const std::string& name, const std::string& source, const Json& context, const Json& expected) {
  auto got = render(source, context);
  if (expected.is_null()) {
    if (got.ok()) ADD_FAILURE() << name << " should fail, but gave:\n" << *got;
  } else if (!got.ok()) {
    ADD_FAILURE() << name << ": " << got.error().message;
  } else {
    EXPECT_EQ(*got, expected.get<std::string>()) << name;
  }
}

TEST(TemplateReference, UnitCases) {
  MILLRACE_NEEDS_SHARED("chat-templates/expected/jinja_unit_cases.json");
  for (const Json& c : read_json("expected/jinja_unit_cases.json")) {
    expect(c["name"], c["template"], c["context"], c["expected_jinja2"]);
  }
}

TEST(TemplateReference, EndToEndCases) {
  MILLRACE_NEEDS_SHARED("chat-templates/expected/hf_e2e_cases.json");
  for (const Json& c : read_json("expected/hf_e2e_cases.json")) {
    expect(c["name"], c["chat_template"], c["context"], c["expected_jinja2"]);
  }
}

TEST(TemplateReference, OldConversations) {
  MILLRACE_NEEDS_SHARED("chat-templates/expected/llamacpp_chat_template_cases.json");
  for (const Json& c : read_json("expected/llamacpp_chat_template_cases.json")) {
    Json context;
    for (const char* key : {"messages", "add_generation_prompt", "bos_token", "eos_token"}) context[key] = c[key];
    expect(c["name"], c["chat_template"], context, c.value("expected_jinja2", Json()));
  }
}

TEST(TemplateReference, EveryTemplateWithEveryContext) {
  MILLRACE_NEEDS_SHARED("chat-templates/expected/reference_renderings.json");
  Json reference = read_json("expected/reference_renderings.json");
  int texts = 0, errors = 0;
  for (const auto& [path, renderings] : reference["renderings"].items()) {
    std::string source = testing::read_file(testing::shared_data() / "chat-templates" / path);
    for (const auto& [name, rendering] : renderings.items()) {
      Json context = reference["contexts"][name];
      context["bos_token"] = "<s>";
      context["eos_token"] = "</s>";
      expect(path + " / " + name, source, context, rendering.value("text", Json()));
      ++(rendering.contains("text") ? texts : errors);
      if (rendering.contains("error")) {  // the same error message
        auto got = render(source, context);
        std::string message = rendering["error"];
        message = message.substr(message.find(": ") + 2);
        if (got.ok()) continue;
        EXPECT_NE(got.error().message.find(message), std::string::npos)
            << path << " / " << name << ": " << got.error().message << "\nexpected: " << message;
      }
    }
  }
  EXPECT_GT(texts, 0);
  EXPECT_GT(errors, 0);
}

}  // namespace
}  // namespace millrace
