// The trace formats, in the order in which they are tried on a file.
#include "workload/readers/records.h"

namespace millrace {

const Registry<const TraceFormat*>& trace_formats() {
  static const Registry<const TraceFormat*> registry(
      "trace_format", {.test = "src/workload/trace_test.cc"},
      {&kMooncake, &kAzure, &kVidur, &kBurstGpt, &kTokenIds, &kAgent, &kAibrix, &kOtel});
  return registry;
}

const TraceFormat* find_trace_format(std::string_view name) {
  const auto* entry = trace_formats().find(name);
  return entry ? entry->member : nullptr;
}

}  // namespace millrace
