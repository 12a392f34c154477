// Brings a model from a hub into the cache: lists the repository, chooses files, fetches what is missing in pieces over
// several connections, checks every file's hash, and links it into the snapshot. What was fetched before a cut stays.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "hub/hub_cache.h"

namespace millrace {

struct PullProgress {
  int64_t bytes = 0;  // there, of the files that were chosen
  int64_t total = 0;
};

struct PullOptions {
  std::string endpoint = hub_endpoint();  // "http://host:port" without a '/' at its end
  std::string token = hub_token();
  std::string revision = "main";  // branch, tag or commit
  std::string cache;              // "": by the environment
  bool offline = hub_offline();   // only what is in the cache
  int connections = 4;
  int64_t piece_bytes = int64_t{16} << 20;
  double timeout_seconds = 30;                        // without a byte
  int attempts = 5;                                   // for a piece, without a byte between them
  double wait_seconds = 0.5;                          // before the second; doubled from one to the next
  std::function<void(const PullProgress&)> progress;  // on the caller's thread, some times a second; may be null
};

struct PulledModel {
  std::string path;  // what to open: the file, or the folder of the snapshot
  std::string commit;
  std::vector<std::string> files;
  int64_t bytes = 0;       // of all files
  int64_t downloaded = 0;  // of those, now
};

// Errors: user (no such repository, file or revision, no access, not in the cache), resource (no connection, no space),
// corrupt (what came is not what the hub promised).
Result<PulledModel> pull_model(const HubName& name, const PullOptions& options);

}  // namespace millrace
