#include "schedule/policy.h"

#include "base/choose.h"

namespace millrace {

Result<std::unique_ptr<SchedulerPolicy>> make_policy(std::string_view text) {
  MILLRACE_TRY(const auto chosen, choose_member("policy", policies(), text));
  return chosen.member(chosen.options);
}

}  // namespace millrace
