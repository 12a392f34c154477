// BatchRunner: OpenAI's batch API. Reads a file of requests and writes a file of answers and one of errors, at lower
// priority than live requests. One thread runs one batch after another. Unfinished batches resume when the process is
// restarted, without repeating answered lines.
//
//   FOLDER/batch_ID.json      the batch as clients see it and its owner, as of its last change of status
//   FOLDER/batch_ID.output    answers so far, one per line; becomes the output file
//   FOLDER/batch_ID.errors    the same for lines that failed; becomes the error file
//   FOLDER/batch_ID.reserve   space for the last changes of an unfinished batch, released when the disk is full: a
//   batch
//                             that fails for lack of space is still failed after a restart
//
//   validating -> in_progress -> finalizing -> completed        (failed: a line is invalid)
//                      cancelling -> cancelled, expired: with the answers so far
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
  int64_t lines = 50000;  // per batch
  int in_flight = 4;      // concurrent lines
  // Per key without the role admin; a new batch above this replaces the key's oldest finished one.
  int64_t key_batches = 100;
};

class BatchRunner {
 public:
  // Loads the batches in the folder and starts the thread.
  BatchRunner(Service& service, FileStore& files, const BatchLimits& limits);
  ~BatchRunner() { stop(); }

  // Resumes unfinished batches; call once. Errors: resource (no thread could be started).
  Result<void> start();

  // `user` owns the batch and its files, and its lines count against the limits of the user's key. Errors: user (the
  // file, the endpoint), resource (too many), kStorageError (the disk).
  Result<Json> create(const std::string& input_file, const std::string& endpoint, const std::string& window,
                      const Json& metadata, const FileUser& user = {});
  // The batches visible to `user`, newest first.
  std::vector<Json> list(const FileUser& user = {}) const;
  std::optional<Json> find(const std::string& id, const FileUser& user = {}) const;
  // nullopt: no such batch. A finished batch is not changed.
  std::optional<Json> cancel(const std::string& id, const FileUser& user = {});
  // Removes a finished batch, but not its files. False: `user` has no such finished batch.
  bool remove(const std::string& id, const FileUser& user = {});
  bool uses(const std::string& file) const;  // returns true if an unfinished batch reads the file

  // Starts no more lines and abandons running ones. Not to be called from its own thread.
  void stop();

 private:
  struct Progress;
  void load();
  void loop();
  void run(const std::string& id);
  void run_lines(const std::string& id);
  void fail(const std::string& id, const std::string& why);
  void fail_for(const std::string& id, const Error& error);
  std::string owner_of(const std::string& id) const;
  bool validate(const std::string& id);
  void finalize(const std::string& id, const char* status);
  enum class Write { no, yes, last };  // last: with the reserve, if there is no other space
  Result<void> change(const std::string& id, const Json& fields, Write write = Write::yes);
  // Called with the mutex held.
  Result<void> keep(const std::string& id, Write write = Write::yes);
  Result<void> reserve(const std::string& id) const;
  bool has_leftovers(const std::string& id) const;
  void drop(const std::string& id);
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
  std::map<std::string, std::string> owners_;  // by id: names of keys; "": no key or an admin key
  std::vector<std::string> queue_;             // unfinished batches, in order
  std::string current_;
  std::atomic<bool> stop_{false}, interrupted_{false};  // the process stops; the running batch must stop
  std::thread thread_;
};

}  // namespace millrace
