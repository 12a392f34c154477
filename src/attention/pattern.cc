#include "attention/pattern.h"

#include <fmt/format.h>

#include "attention/diffusing_pattern.h"
#include "attention/fitted_pattern.h"
#include "base/choose.h"

namespace millrace {

Result<std::shared_ptr<const AttentionPattern>> make_attention_pattern(std::string_view text) {
  MILLRACE_TRY(const auto chosen, choose_member("attention", attention_patterns(), text));
  if (!chosen.member) return Error::user(fmt::format("{}: the model's layers determine it", chosen.label));
  auto made = chosen.member(chosen.options);
  if (!made.ok()) return Error::user(fmt::format("{}: {}", chosen.label, made.error().message));
  std::unique_ptr<AttentionPattern> pattern = std::move(*made);
  const std::string& phase = chosen.options.text("phase");
  if (phase != "all" && phase != "prompt" && phase != "decode")
    return Error::user(fmt::format("{}: phase: must be all, prompt or decode, got '{}'", chosen.label, phase));
  if (phase != "all" && diffusing_pattern(pattern.get()))
    return Error::user(fmt::format(
        "{}: phase: must be all where values go several hops, which tokens of the other phase would not pass on",
        chosen.label));
  if (phase != "all") pattern->phase_ = phase == "prompt" ? PatternPhase::prompt : PatternPhase::decode;
  pattern->block_ = chosen.options.integer("block");
  pattern->text_ = std::string(text);
  if (const auto* fitted = dynamic_cast<const FittedPattern*>(pattern.get())) pattern->text_ += " " + fitted->digest();
  return std::shared_ptr<const AttentionPattern>(std::move(pattern));
}

Result<void> check_pattern_blocks(const AttentionPattern& pattern, int64_t context, int64_t block_tokens) {
  const int64_t block = pattern.block();
  if (block % block_tokens != 0)
    return Error::user(fmt::format("attention {}: block: must be a multiple of the {} tokens of a KV block, is {}",
                                   pattern.text(), block_tokens, block));
  if ((context + block - 1) / block <= kMaxPatternBlocks) return {};
  return Error::user(fmt::format("attention {}: block: a context of {} tokens has more than {} blocks of {}",
                                 pattern.text(), context, kMaxPatternBlocks, block));
}

double pattern_density(const AttentionPattern& pattern, int64_t layers, int64_t heads, int64_t tokens) {
  double seen = 0;
  for (int64_t layer = 0; layer < layers; ++layer) {
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t block = 0; block * pattern.block() < tokens; ++block) {
        BlockMarks marks(block);
        pattern.mark({layer, head, heads}, block, marks);
        const auto queries = static_cast<double>(std::min(pattern.block(), tokens - block * pattern.block()));
        seen += queries * static_cast<double>(marks.count() * pattern.block()) + queries * (queries + 1) / 2;
      }
    }
  }
  const auto all = static_cast<double>(tokens) * (static_cast<double>(tokens) + 1) / 2;
  return seen / all / static_cast<double>(layers * heads);
}

}  // namespace millrace
