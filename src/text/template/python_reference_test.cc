// The project's own templates and conversations, compared with Python's jinja2, which the test runs.
// Skipped if python3 with jinja2 is not installed: only this test needs it.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>

#include "base/ordered_json.h"
#include "shared_data.h"
#include "test_paths.h"
#include "text/template/chat_template.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kNoJinja = 77;  // exit code of the script if jinja2 is not installed
constexpr int kNoPython = 127;

TEST(TemplatePython, OwnTemplatesWithOwnConversations) {
  std::filesystem::path folder = std::filesystem::path(MILLRACE_SOURCE_DIR) / "tests" / "golden" / "jinja";
  if (!std::filesystem::exists(folder / "render_reference.py")) GTEST_SKIP() << "no reference script in " << folder;
  // English names of months and days, and UTC, on both sides.
  setenv("TZ", "UTC", 1);
  tzset();
  std::string command = "LC_ALL=C.UTF-8 python3 '" + (folder / "render_reference.py").string() + "' 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string printed;
  char buffer[1 << 14];
  while (size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) printed.append(buffer, n);
  int status = pclose(pipe);
  int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (code == kNoJinja || code == kNoPython) GTEST_SKIP() << "needs python3 with jinja2 (python3-jinja2)";
  ASSERT_EQ(code, 0) << printed;

  Json reference = Json::parse(printed, nullptr, false);
  ASSERT_TRUE(reference.is_object()) << printed.substr(0, 1000);
  size_t compared = 0;
  for (const auto& [name, renderings] : reference.items()) {
    auto parsed = ChatTemplate::parse(testing::read_file(folder / "templates" / (name + ".jinja")));
    ASSERT_TRUE(parsed.ok()) << name << ": " << parsed.error().message;
    for (const auto& [context_name, expected] : renderings.items()) {
      SCOPED_TRACE(name + " with " + context_name);
      Json context = Json::parse(testing::read_file(folder / "contexts" / (context_name + ".json")), nullptr, false);
      auto got = parsed->render(context);
      ++compared;
      if (expected.contains("text") && got.ok()) {
        EXPECT_EQ(*got, expected["text"].get<std::string>());
      } else if (expected.contains("text")) {
        ADD_FAILURE() << got.error().message;
      } else if (got.ok()) {
        ADD_FAILURE() << "should fail with " << expected["error"] << ", but gave:\n" << *got;
      } else {  // "TypeError: message": the same message
        std::string message = expected["error"];
        message = message.substr(message.find(": ") + 2);
        EXPECT_NE(got.error().message.find(message), std::string::npos) << got.error().message << "\nnot " << message;
      }
    }
  }
  EXPECT_GE(compared, 20u);
}

}  // namespace
}  // namespace millrace
