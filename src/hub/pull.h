// Downloads a model from a hub into the cache: lists the repository, selects files, fetches missing pieces over several
// connections, verifies every file's hash, and links it into the snapshot. Interrupted downloads can be resumed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "hub/hub_cache.h"

namespace millrace {

struct PullProgress {
  int64_t bytes = 0;   // bytes of the selected files that have been downloaded
  int64_t total = 0;   // bytes of the selected files
  int64_t before = 0;  // bytes of them that were there before this download
};

struct PullOptions {
  std::string shown_name = {};            // name of the model in messages; "": its repository
  std::string endpoint = hub_endpoint();  // "http://host:port" without a trailing '/'
  std::string token = hub_token();
  std::string revision = "main";  // branch, tag or commit
  std::string cache;              // "": from the environment
  bool offline = hub_offline();   // use only files that are in the cache
  int connections = 4;
  int64_t piece_bytes = int64_t{16} << 20;
  double timeout_seconds = 30;  // maximum time without receiving a byte
  int attempts = 5;             // maximum attempts per piece without progress
  double wait_seconds = 0.5;    // wait before the second attempt; doubles for each further attempt
  // called on the caller's thread several times a second; may be null
  std::function<void(const PullProgress&)> progress;
  // called like `progress`; returns true to stop the download, which a later call can resume; may be null
  std::function<bool()> cancelled;
};

struct PulledModel {
  std::string path;  // the file to open, or the snapshot folder
  std::string commit;
  std::vector<std::string> files;
  int64_t bytes = 0;       // bytes of all files
  int64_t downloaded = 0;  // bytes that this call downloaded
};

// Errors: user (no such repository, file or revision; no access; offline and not in the cache), network (no
// connection), resource (no space), corrupt (a size or hash differs from the hub's).
Result<PulledModel> pull_model(const HubName& name, const PullOptions& options);

}  // namespace millrace
