// Evaluates a trained model: held-out bits per byte, and sample stories for the model card. It is a simple loop without
// a KV cache, sufficient for a few hundred tokens. The engine serves exported models.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "learn/bpe_trainer.h"
#include "train/story_model.h"

namespace millrace {

struct HeldOutScore {
  int64_t bytes = 0, tokens = 0;
  double nats = 0;  // sum over the text's tokens, without the end-of-story token, which has no bytes
  double bits_per_byte() const;
  double nats_per_token() const { return tokens > 0 ? nats / static_cast<double>(tokens) : 0.0; }
};

// Scores each story separately, after <s>; stories longer than the context are truncated.
HeldOutScore score_stories(StoryModel& model, BpeEncoder& encoder, const std::vector<std::string>& stories);

// Continues `prompt` until </s> or `max_tokens`.
std::string sample_story(StoryModel& model, BpeEncoder& encoder, const std::string& prompt, int64_t max_tokens,
                         double temperature, uint64_t seed);

}  // namespace millrace
