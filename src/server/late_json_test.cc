#include "server/late_json.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

// A document with late arrays of `counts` elements, and the same complete.
struct Twins {
  Json late, whole;
  LateArrays arrays;
};

Twins twins(const std::vector<size_t>& counts) {
  Twins out;
  out.late = out.whole = {{"text", "a \"quoted\" \xC3\xA9 \n and a broken \xFF byte"},
                          {"numbers", {1, 2.5, nullptr, true}},
                          {"empty", {{"list", Json::array()}, {"object", Json::object()}}},
                          {"odd \"name\"", Json::array()}};
  for (size_t i = 0; i < counts.size(); ++i) {
    Json list = Json::array();
    for (size_t k = 0; k < counts[i]; ++k) list.push_back({{"i", i}, {"k", k}});
    out.whole["odd \"name\""].push_back({{"before", i}, {"list", list}, {"after", {"x"}}});
    out.late["odd \"name\""].push_back({{"before", i},
                                        {"list", out.arrays.add(counts[i],
                                                                [i](std::string& text, size_t k) {
                                                                  text += to_text(Json{{"i", i}, {"k", k}});
                                                                })},
                                        {"after", {"x"}}});
  }
  return out;
}

TEST(LateText, IsTheTextOfTheCompleteDocument) {
  for (const std::vector<size_t>& counts : std::vector<std::vector<size_t>>{{}, {0}, {1}, {3, 0, 200}}) {
    for (const size_t bytes : {1, 7, 100, 1 << 20}) {
      Twins both = twins(counts);
      LateText text(both.late, std::move(both.arrays));
      std::string all;
      for (bool more = true; more;) {
        std::string part;
        more = text.next(part, bytes);
        EXPECT_TRUE(!more || part.size() >= bytes);
        EXPECT_LT(part.size(), bytes + 200) << "an element or a text more at most";
        all += part;
      }
      EXPECT_EQ(all, to_text(both.whole));
      std::string nothing;
      EXPECT_FALSE(text.next(nothing, bytes));
      EXPECT_EQ(nothing, "");
    }
    Twins both = twins(counts);
    EXPECT_EQ(to_text(both.late, both.arrays), to_text(both.whole));
    EXPECT_TRUE(both.arrays.empty()) << "ready for the next document";
  }
}

TEST(LateText, ADocumentCanBeALateArray) {
  LateArrays arrays;
  const Json document = arrays.add(2, [](std::string& out, size_t i) { out += std::to_string(i); });
  EXPECT_EQ(to_text(document, arrays), "[0,1]");
}

// Elements are not written before they are asked for.
TEST(LateText, WritesNothingAhead) {
  size_t written = 0;
  LateArrays arrays;
  const Json document = {{"list", arrays.add(1000, [&](std::string& out, size_t) { out += "1234567", ++written; })}};
  LateText text(document, std::move(arrays));
  EXPECT_EQ(written, 0u);
  std::string part;
  EXPECT_TRUE(text.next(part, 80));
  EXPECT_LE(written, 11u);
}

}  // namespace
}  // namespace millrace
