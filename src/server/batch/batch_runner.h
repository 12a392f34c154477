// BatchRunner: OpenAI's batches: a file of requests in, files of answers and of errors out, while the server has
// nothing better to do. One thread runs one batch after the other. What is unfinished when the process ends goes on at
// the next start; lines that were answered are not asked again.
//
//   FOLDER/batch_ID.json      the batch as clients see it and its owner, at its last change of status
//   FOLDER/batch_ID.output    answers so far, one a line; becomes the output file
//   FOLDER/batch_ID.errors    the same of lines that were refused
//
//   validating -> in_progress -> finalizing -> completed        (failed: a line is not what it must be)
//                      cancelling -> cancelled, expired: with what there is
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/batch/file_store.h"
#include "server/json.h"

namespace millrace {

class Service;
struct BatchLine;

struct BatchLimits {
  int64_t batches = 1000;
  int64_t lines = 50000;  // of one
  int in_flight = 4;      // lines at a time
  int64_t key_batches =
      100;  // of one key that is no administrator's; beyond that its oldest that has ended is forgotten
};

class BatchRunner {
 public:
  // Takes up what the folder holds, and begins.
  BatchRunner(Service& service, FileStore& files, const BatchLimits& limits);
  ~BatchRunner() { stop(); }

  // It is `user`'s, as its files will be, and its lines count against the limits of his key. Errors: user (the file,
  // the endpoint), resource (too many).
  Result<Json> create(const std::string& input_file, const std::string& endpoint, const std::string& window,
                      const Json& metadata, const FileUser& user = {});
  // Those that `user` sees; the latest first.
  std::vector<Json> list(const FileUser& user = {}) const;
  std::optional<Json> find(const std::string& id, const FileUser& user = {}) const;
  // Nothing: there is none. One that has ended stays as it is.
  std::optional<Json> cancel(const std::string& id, const FileUser& user = {});
  // False: there is none of `user`'s that has ended. Its files stay.
  bool remove(const std::string& id, const FileUser& user = {});
  bool uses(const std::string& file) const;  // an unfinished one

  // No lines begin from now on, and those under way are given up. Not from its own thread.
  void stop();

 private:
  struct Progress;
  void load();
  void loop();
  void run(const std::string& id);
  void run_lines(const std::string& id);
  void fail(const std::string& id, const std::string& why);
  std::string owner_of(const std::string& id) const;
  bool validate(const std::string& id);
  void finalize(const std::string& id, const char* status);
  void change(const std::string& id, const Json& fields, bool write = true);  // write: it down, too
  // These hold the mutex.
  Result<void> keep(const std::string& id);
  Result<void> room_for_batch(const FileUser& user);
  bool others_wait(const std::string& owner) const;
  std::filesystem::path path(const std::string& id, const char* extension) const {
    return files_.folder() / (id + extension);
  }

  Service& service_;
  FileStore& files_;
  const BatchLimits limits_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<std::string, Json> batches_;        // by id
  std::map<std::string, std::string> owners_;  // the same: names of keys; "": administrators'
  std::vector<std::string> queue_;             // unfinished ones, in order
  std::string current_;
  std::atomic<bool> stop_{false}, interrupted_{false};  // the process; the batch that runs
  std::thread thread_;
};

}  // namespace millrace
