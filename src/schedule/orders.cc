#include "schedule/orders.h"

#include <fmt/format.h>

#include <limits>

namespace millrace {

void share_decodes_first(const ScheduleView& view, int64_t token_budget, std::vector<Share>& out) {
  share_decodes_first(view, token_budget, std::numeric_limits<int64_t>::max(), out);
}

void share_decodes_first(const ScheduleView& view, int64_t token_budget, int64_t prompt_budget,
                         std::vector<Share>& out) {
  int64_t left = token_budget;
  for (const Sequence* stream : view.running) {
    if (!stream->decoding()) continue;
    out.push_back({stream, 1});
    --left;
  }
  left = std::min(left, prompt_budget);
  for (const Sequence* stream : view.running) {
    if (left <= 0) break;
    if (stream->decoding()) continue;
    const int64_t tokens = std::min(left, stream->remaining());
    out.push_back({stream, tokens});
    left -= tokens;
  }
}

const Sequence* last_arrived(const ScheduleView& view, const Sequence& wanting) {
  if (wanting.phase == StreamPhase::waiting || wanting.phase == StreamPhase::swapped) return nullptr;
  return last_behind(view, wanting, [](const Sequence&) { return 0; });
}

OptionSpec reserve_option(const char* default_value) {
  return {"reserve",
          OptionSpec::Type::text,
          default_value,
          0,
          0,
          "KV blocks promised at admission: whole (all that the request may need) or prompt (what it has; may be "
          "preempted)"};
}

Result<Reserve> read_reserve(const OptionValues& options) {
  const std::string& text = options.text("reserve");
  if (text == "whole") return Reserve::whole;
  if (text == "prompt") return Reserve::prompt;
  return Error::user(fmt::format("reserve: whole or prompt, got '{}'", text));
}

int64_t promised_tokens(Reserve reserve, const Sequence& stream) {
  return reserve == Reserve::whole ? stream.max_total : std::min(stream.max_total, stream.size() + 1);
}

}  // namespace millrace
