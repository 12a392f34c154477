#include "server/json.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(JsonText, MatchesTheLibrary) {
  for (const std::string text : {"", "plain", "a \"quote\" and a \\", "line\nbreak\ttab", "\x01\x1f\x7f",
                                 "caf\u00e9 \u4e16\u754c", "\xff broken \xc3", "</script>"}) {
    std::string out = "x";
    append_json_text(out, text);
    EXPECT_EQ(out, "x" + to_text(Json(text)));
  }
  for (int c = 0; c < 256; ++c) {
    const std::string text = std::string("a") + static_cast<char>(c);
    std::string out;
    append_json_text(out, text);
    EXPECT_EQ(out, to_text(Json(text))) << c;
  }
}

}  // namespace
}  // namespace millrace
