// Stop strings end an answer, not the thinking before it, however the text is cut into tokens.
#include "sampling/answer_stops.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

struct Seen {
  std::string text;
  bool stopped = false;
  bool operator==(const Seen&) const = default;
};
void PrintTo(const Seen& seen, std::ostream* out) { *out << seen.text << (seen.stopped ? " (stopped)" : ""); }

Seen read(const Request& request, std::string_view text, size_t stride) {
  AnswerStops stops = *AnswerStops::create(request);
  Seen out;
  for (size_t at = 0; at < text.size() && !stops.stopped(); at += stride)
    out.text += stops.push(text.substr(at, stride));
  out.text += stops.flush();
  out.stopped = stops.stopped();
  return out;
}

Request asked(bool begun, std::vector<std::string> stop, bool include = false) {
  Request request;
  request.stop = std::move(stop);
  request.include_stop = include;
  request.thinking = {-1, "<think>", "</think>", begun, "<tool_call>"};
  return request;
}

TEST(AnswerStops, CountInTheAnswerOnly) {
  const struct {
    bool begun;
    const char* stop;
    const char* text;
    Seen seen;
  } cases[] = {
      {true, "END", "so END is</think>a END b", {"so END is</think>a ", true}},
      {true, "END", "so END is", {"so END is", false}},
      {true, "END", "so </thin", {"so </thin", false}},
      {true, "END", "EN</think>D END", {"EN</think>D ", true}},
      {true, "</think>", "a</think>b</think>c", {"a</think>b", true}},
      {true, "<tool_call>", "so <tool_call>{}", {"so ", true}},
      {true, "}", "so }<tool_call>{} a", {"so }<tool_call>{", true}},
      {false, "END", " <think>END</think>a END", {" <think>END</think>a ", true}},
      {false, "END", "a END <think>b</think>", {"a ", true}},
      {false, "<", "<thinker>", {"", true}},
      {false, "<think>", "<think>a</think>b<think>c", {"<think>a</think>b", true}},
      {false, "x", " <thi", {" <thi", false}},
      {false, "i", " <thi", {" <th", true}},
  };
  for (const auto& c : cases)
    for (size_t stride = 1; stride < 12; ++stride)
      EXPECT_EQ(read(asked(c.begun, {c.stop}), c.text, stride), c.seen) << c.text << " by " << stride;
}

TEST(AnswerStops, KeepTheStopStringIfAsked) {
  EXPECT_EQ(read(asked(true, {"END"}, true), "END</think>a END b", 4), (Seen{"END</think>a END", true}));
}

TEST(AnswerStops, PassEverythingAtOnceWithoutThinkingOrStops) {
  Request request;
  request.stop = {"END"};
  EXPECT_EQ(read(request, "<think>a END", 3), (Seen{"<think>a ", true}));
  AnswerStops none = *AnswerStops::create(asked(false, {}));
  EXPECT_EQ(none.push(" <thi"), " <thi");
}

}  // namespace
}  // namespace millrace
