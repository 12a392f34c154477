// The trace formats, in the order in which a file is held against them.
#include "workload/readers/records.h"

namespace millrace {

std::span<const TraceFormat* const> trace_formats() {
  static constexpr const TraceFormat* kFormats[] = {&kMooncake, &kAzure, &kVidur,  &kBurstGpt,
                                                    &kTokenIds, &kAgent, &kAibrix, &kOtel};
  return kFormats;
}

const TraceFormat* find_trace_format(std::string_view name) {
  for (const TraceFormat* format : trace_formats())
    if (format->name == name) return format;
  return nullptr;
}

}  // namespace millrace
