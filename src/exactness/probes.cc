#include "exactness/probes.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/philox.h"
#include "workload/remote/completion_api.h"

namespace millrace {
namespace {

constexpr int64_t kShortWords = 6;
constexpr double kSeededTemperature = 0.8;
constexpr uint64_t kFillerStream = uint64_t{1} << 32;  // fillers' words differ from those of all probes

enum WordStream : uint64_t { kShortPrompt = 1, kLongPrompt, kPrefix, kFirstEnd, kSecondEnd };

std::string random_words(uint64_t salt, uint64_t stream, int64_t count) {
  std::vector<TokenId> words;
  for (int64_t i = 0; i < count; ++i)
    words.push_back(static_cast<TokenId>(65536 * philox_uniform(salt, stream, static_cast<uint64_t>(i))));
  return words_of(words);
}

CompletionCall call_of(const ProbeSizes& sizes, std::string prompt, bool seeded) {
  CompletionCall call;
  call.prompt = std::move(prompt);
  call.max_tokens = sizes.max_tokens;
  if (seeded) {
    call.temperature = kSeededTemperature;
    call.seed = 7;
  }
  return call;
}

}  // namespace

std::vector<Probe> make_probes(const ProbeSizes& sizes) {
  const auto words = [&](WordStream stream, int64_t count) { return random_words(sizes.salt, stream, count); };
  const int64_t prefix_words = std::max<int64_t>(1, sizes.long_words * 3 / 4);
  const int64_t end_words = std::max<int64_t>(1, sizes.long_words - prefix_words);
  const int64_t short_words = std::min(kShortWords, sizes.long_words);
  const std::string short_prompt = words(kShortPrompt, short_words), long_prompt = words(kLongPrompt, sizes.long_words),
                    prefix = words(kPrefix, prefix_words) + " ";
  return {{"short, greedy", call_of(sizes, short_prompt, false)},
          {"short, seeded", call_of(sizes, short_prompt, true)},
          {"long, greedy", call_of(sizes, long_prompt, false)},
          {"long, seeded", call_of(sizes, long_prompt, true)},
          {"shared prefix, greedy", call_of(sizes, prefix + words(kFirstEnd, end_words), false)},
          {"shared prefix, seeded", call_of(sizes, prefix + words(kSecondEnd, end_words), true)}};
}

CompletionCall make_filler(const ProbeSizes& sizes, uint64_t index, int64_t words) {
  return call_of(sizes, random_words(sizes.salt, kFillerStream + index, words), index % 2 == 1);
}

}  // namespace millrace
