#include "learn/story_rows.h"

#include <algorithm>

#include "lab/lab_random.h"

namespace millrace {
namespace {

constexpr uint64_t kRowStream = 0x726f7773;

}  // namespace

StoryRows::StoryRows(const TokenizerSpec& spec, std::vector<std::string> stories, uint64_t seed, int64_t context)
    : encoder_(spec), stories_(std::move(stories)), seed_(seed), context_(context) {}

LabExample StoryRows::example(uint64_t index, int64_t longest) {
  LabRandom random(seed_ ^ kRowStream, index, 0);
  const auto most = static_cast<size_t>(longest);
  std::string text;
  while (text.size() < most) {
    if (!text.empty()) text += "\n\n";
    text += random.pick(stories_);
  }
  text.resize(std::min(text.size(), text.rfind(' ', most)));
  LabExample out;
  out.ids = encoder_.encode(text);
  out.ids.insert(out.ids.begin(), kBosId);
  // The last token of a full row is a target only.
  out.ids.resize(std::min(out.ids.size(), static_cast<size_t>(context_ + 1)));
  out.weights.assign(out.ids.size(), 1.0f);
  return out;
}

}  // namespace millrace
