#include "prompt/compression_task.h"

#include <algorithm>
#include <cmath>

namespace millrace {

using Type = OptionSpec::Type;

Result<CompressionOptions> CompressionOptions::read(const OptionValues& options, bool has_parts, bool has_model) {
  CompressionOptions out;
  out.rate = options.number("rate");
  out.tokens = options.integer("tokens");
  out.keep_last = options.integer("keep_last");
  MILLRACE_TRY(out.scope, find_prompt_scope(options.text("scope")));
  if (has_parts) {
    MILLRACE_TRY(out.parts, find_part_break(options.text("parts")));
  }
  if (has_model) out.model = options.text("model");
  return out;
}

std::vector<OptionSpec> compression_options(const std::string& rate, bool has_parts, bool has_model,
                                            std::vector<OptionSpec> own) {
  std::vector<OptionSpec> out = {
      {"rate", Type::number, rate, 0, 1, "share of the tokens before the question that remains"},
      {"tokens", Type::integer, "0", 0, 1e9, "most tokens of the prompt that may remain; 0: no limit"},
      {"keep_last", Type::integer, "0", 0, 1e9,
       "tokens at the end that are never dropped; 0: the last line, the question"},
      {"scope", Type::text, "all", 0, 0,
       "what may be dropped: documents (the last message), history, tools, or all of what users and tools wrote"},
  };
  if (has_parts)
    out.push_back({"parts", Type::text, "automatic", 0, 0,
                   "what separates documents: line, paragraph (an empty line), or automatic"});
  if (has_model)
    out.push_back({"model", Type::text, "", 0, 0, "file of the model that scores; default: the model that answers"});
  out.insert(out.end(), own.begin(), own.end());
  return out;
}

namespace {

// The end of a part, or where the question begins in it. The question is at the end of a text.
int64_t last_before(TokenRange question, TokenRange part) {
  const int64_t end = part.first + part.count;
  return question.count > 0 && question.first < end && part.first < question.first + question.count
             ? std::max(part.first, question.first)
             : end;
}

}  // namespace

CompressionTask CompressionTask::create(const PromptView& prompt, const CompressionOptions& options, int64_t budget) {
  CompressionTask out;
  out.fixed.assign(prompt.fixed.begin(), prompt.fixed.end());
  out.question = find_question(prompt, options.parts, options.keep_last);
  std::fill_n(out.fixed.begin() + out.question.first, out.question.count, char{1});
  for (TokenRange part : split_parts(prompt.texts, prompt.fixed, options.parts)) {
    part.count = std::min(part.count, last_before(out.question, part) - part.first);
    if (part.count > 0) out.parts.push_back(part);
  }
  const auto all = std::ssize(prompt.tokens);
  out.droppable = std::ranges::count(out.fixed, char{0});
  const int64_t others = all - out.droppable;
  const int64_t most = options.tokens > 0 ? std::min(budget, options.tokens) : budget;
  out.keep = std::llround(options.rate * static_cast<double>(out.droppable));
  out.keep = std::clamp<int64_t>(std::min(out.keep, most - others), others == 0 ? 1 : 0, out.droppable);
  return out;
}

std::vector<int64_t> remaining(std::span<const char> dropped) {
  std::vector<int64_t> out;
  for (size_t i = 0; i < dropped.size(); ++i)
    if (!dropped[i]) out.push_back(static_cast<int64_t>(i));
  return out;
}

}  // namespace millrace
