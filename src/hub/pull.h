// Downloads a model from a hub into the cache: lists the repository, selects files, fetches missing pieces over several
// connections, verifies every file's hash, and links it into the snapshot. Interrupted downloads can be resumed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "hub/hub_cache.h"

namespace millrace {

struct PullProgress {
  int64_t bytes = 0;  // downloaded so far of the selected files
  int64_t total = 0;
};

struct PullOptions {
  std::string endpoint = hub_endpoint();  // "http://host:port" without a trailing '/'
  std::string token = hub_token();
  std::string revision = "main";  // branch, tag or commit
  std::string cache;              // "": from the environment
  bool offline = hub_offline();   // use only files in the cache
  int connections = 4;
  int64_t piece_bytes = int64_t{16} << 20;
  double timeout_seconds = 30;  // without receiving a byte
  int attempts = 5;             // per piece, without progress in between
  double wait_seconds = 0.5;    // before the second attempt; doubles for each further one
  std::function<void(const PullProgress&)>
      progress;                     // called on the caller's thread several times a second; may be null
  std::function<bool()> cancelled;  // called as `progress` is; true: stops, a later call can resume; may be null
};

struct PulledModel {
  std::string path;  // the file to open, or the snapshot folder
  std::string commit;
  std::vector<std::string> files;
  int64_t bytes = 0;       // bytes of all files
  int64_t downloaded = 0;  // bytes that this call downloaded
};

// Errors: user (no such repository, file or revision, no access, not in the cache), network (no connection), resource
// (no space), corrupt (size or hash differ from the hub's).
Result<PulledModel> pull_model(const HubName& name, const PullOptions& options);

}  // namespace millrace
