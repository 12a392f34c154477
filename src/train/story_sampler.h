// Reads a trained model back: held-out bits per byte, and sample stories for the model card. A plain recomputing
// loop, good enough for a few hundred tokens; serving is the engine's business.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/bpe_trainer.h"
#include "train/story_model.h"

namespace millrace {

struct HeldOutScore {
  int64_t bytes = 0, tokens = 0;
  double nats = 0;  // of the text's own tokens; the end-of-story token is left out, no byte stands for it
  double bits_per_byte() const;
  double nats_per_token() const { return tokens > 0 ? nats / static_cast<double>(tokens) : 0.0; }
};

// Each story on its own, after <s>; longer ones than the context are cut to it.
HeldOutScore score_stories(StoryModel& model, BpeEncoder& encoder, const std::vector<std::string>& stories);

// Goes on from `prompt` until </s> or `max_tokens`.
std::string sample_story(StoryModel& model, BpeEncoder& encoder, const std::string& prompt, int64_t max_tokens,
                         double temperature, uint64_t seed);

}  // namespace millrace
