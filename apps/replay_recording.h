// Asks again what `millrace serve --record` wrote down, and compares the answers bit for bit.
#pragma once

#include <string>

#include "model_flags.h"

namespace millrace {

struct ReplayRecordingFlags {
  std::string path, url, served_model;
  double speed = 1;      // arrivals so many times as dense; 0: all at once
  bool partial = false;  // a file that lacks its end will do
  bool json = false;
  int64_t in_flight = 256;
};

// To an engine of `options` over `model`, or to the server at flags.url. Exit code 0: every answer was the same (or
// none could be compared, which is said); 1: some were not.
Result<int> replay_recording(const ReplayRecordingFlags& flags, const ModelFlags& model, const EngineOptions& options);

}  // namespace millrace
