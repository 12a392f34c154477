// Replays the requests recorded by `millrace serve --record` and compares the answers token by token.
#pragma once

#include <string>

#include "model_flags.h"

namespace millrace {

struct ReplayRecordingFlags {
  std::string path, url, served_model;
  double speed = 1;      // speed-up of arrivals; 0: all at once
  bool partial = false;  // accept a truncated file
  bool json = false;
  int64_t in_flight = 256;
};

// Sends the requests to an engine with `options` on `model`, or to the server at flags.url. Exit code 0: every answer
// was identical (or none could be compared, which is reported); 1: some differ.
Result<int> replay_recording(const ReplayRecordingFlags& flags, const ModelFlags& model, const EngineOptions& options);

}  // namespace millrace
