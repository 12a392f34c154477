// Iteration-level scheduling as in Orca (Yu et al., 2022), with the memory management that the vLLM paper (Kwon et al.,
// 2023) compares with: a stream's KV cache is reserved at admission, in one piece, for the longest possible answer
// (max), for the next power of two above the true length (pow2), or for the true length (oracle). Prompts run whole.
#include <fmt/format.h>

#include <bit>

#include "schedule/orders.h"
#include "schedule/policies/factories.h"

namespace millrace {
namespace {

enum class Room { max, pow2, oracle };

class Orca final : public SchedulerPolicy {
 public:
  explicit Orca(Room room) : room_(room) {}

  void share(const ScheduleView& view, int64_t token_budget, std::vector<Share>& out) override {
    int64_t left = token_budget;
    for (const Sequence* stream : view.running) {
      const int64_t tokens = std::min(left, stream->remaining());
      if (tokens <= 0) break;
      if (!out.empty() && tokens < stream->remaining()) continue;  // whole, or alone
      out.push_back({stream, tokens});
      left -= tokens;
    }
  }
  const Sequence* victim(const ScheduleView& view, const Sequence& wanting) override {
    return last_arrived(view, wanting);
  }

  int64_t promise(const Sequence& stream, const PlannerLimits& limits) const override {
    const int64_t known = stream.request.known_tokens;
    if (room_ == Room::max || known < 0) return std::max(stream.max_total, limits.context);
    const int64_t answer =
        room_ == Room::oracle ? known : static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(known)));
    return stream.prompt_tokens + answer;
  }

 private:
  Room room_;
};

}  // namespace

Result<std::unique_ptr<SchedulerPolicy>> make_orca(const OptionValues& options) {
  const std::string& text = options.text("room");
  if (text != "max" && text != "pow2" && text != "oracle")
    return Error::user(fmt::format("room: max, pow2 or oracle, got '{}'", text));
  const Room room = text == "max" ? Room::max : text == "pow2" ? Room::pow2 : Room::oracle;
  return std::unique_ptr<SchedulerPolicy>(std::make_unique<Orca>(room));
}

}  // namespace millrace
