// The factories of the policies, each defined in its own file in this folder. builtin.cc lists them.
#pragma once

#include "schedule/policy.h"

namespace millrace {

Result<std::unique_ptr<SchedulerPolicy>> make_fcfs(const OptionValues& options);
Result<std::unique_ptr<SchedulerPolicy>> make_prefill_first(const OptionValues& options);
Result<std::unique_ptr<SchedulerPolicy>> make_decode_first(const OptionValues& options);
Result<std::unique_ptr<SchedulerPolicy>> make_stall_free(const OptionValues& options);
Result<std::unique_ptr<SchedulerPolicy>> make_skip_join_mlfq(const OptionValues& options);
Result<std::unique_ptr<SchedulerPolicy>> make_vtc(const OptionValues& options);
Result<std::unique_ptr<SchedulerPolicy>> make_priority(const OptionValues& options);
Result<std::unique_ptr<SchedulerPolicy>> make_deadline(const OptionValues& options);
Result<std::unique_ptr<SchedulerPolicy>> make_shortest_predicted(const OptionValues& options);
Result<std::unique_ptr<SchedulerPolicy>> make_load_stabilizing(const OptionValues& options);
Result<std::unique_ptr<SchedulerPolicy>> make_orca(const OptionValues& options);

}  // namespace millrace
