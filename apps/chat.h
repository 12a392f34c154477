// The conversation of `millrace chat`. `millrace run MODEL` in a terminal holds the same conversation.
#pragma once

#include <string>

#include "chat_session.h"
#include "model_flags.h"
#include "model_words.h"

namespace millrace {

struct ChatFlags {
  ModelFlags model;
  EngineFlags engine;
  SamplingFlags sampling;
  ModelWords words;
  ChatSettings settings;
  std::string system, history;
  bool max_tokens_given = false;
};

// Talks until the end of standard input. Returns the exit code: 0, or in a script that of the last message's error.
Result<int> chat(ChatFlags flags);

}  // namespace millrace
